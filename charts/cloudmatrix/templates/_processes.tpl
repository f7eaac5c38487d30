{{/*
The enabled processes, from files/processes.yaml, which is generated from the catalogue, each with the values of its name.
A process that calls a disabled one is refused here, before anything is installed, unless it can do without; the embedded
Kubernetes API is an exception, since the cluster's own takes its place.
*/}}
{{- define "cloudmatrix.processes" -}}
{{- $running := list }}
{{- range $process := .Files.Get "files/processes.yaml" | fromYamlArray }}
{{- $values := index $.Values $process.name }}
{{- if $values.enabled }}
{{- range $called := $process.calls }}
{{- if not (or (eq $called "kube") (has $called $process.optional) (index $.Values $called).enabled) }}
{{- fail (printf "%s.enabled: %s calls %s, which does not run; enable that one or disable this one" $process.name $process.name $called) }}
{{- end }}
{{- end }}
{{- $calls := list }}
{{- range $called := $process.calls }}
{{- if (index $.Values $called).enabled }}{{ $calls = append $calls $called }}{{ end }}
{{- end }}
{{- $keeps := or $process.keepsFiles (and $process.hasDatabase (eq $.Values.database.mode "sqlite")) }}
{{- $volume := and $keeps $.Values.persistence.enabled }}
{{- $running = append $running (merge (dict "values" $values "calls" $calls "volume" $volume) $process) }}
{{- end }}
{{- end }}
{{- $running | toYaml }}
{{- end }}

{{/* Environment of a process: (list $ process). */}}
{{- define "cloudmatrix.environment" -}}
{{- $root := index . 0 }}{{ $process := index . 1 }}
{{- $fullname := include "cloudmatrix.fullname" $root }}
{{- $name := $process.name -}}
- {name: CLOUDMATRIX_HOST, value: {{ $root.Values.listen | quote }}}
- {name: CLOUDMATRIX_PORT, value: {{ $process.port | quote }}}
- {name: CLOUDMATRIX_STATE, value: /state}
- {name: CLOUDMATRIX_LOG_LEVEL, value: {{ $root.Values.logLevel }}}
{{- if not (kindIs "invalid" $root.Values.seed) }}
- {name: CLOUDMATRIX_SEED, value: {{ $root.Values.seed | toJson | quote }}}
{{- end }}
{{- if not (has $name (list "kube" "operator")) }}
- {name: CLOUDMATRIX_TOKENS, value: /etc/cloudmatrix/tokens/tokens.json}
{{- end }}
{{- if $process.calls }}
- name: CLOUDMATRIX_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "cloudmatrix.tokens" $root }}, key: {{ $name }}-token}}
{{- end }}
{{- range $called := $root.Files.Get "files/processes.yaml" | fromYamlArray }}
{{- if and (has $called.name $process.calls) (ne $called.name "kube") }}
- {name: CLOUDMATRIX_{{ upper $called.name }}_URL, value: "{{ $called.scheme }}://{{ $fullname }}-{{ $called.name }}:{{ $called.port }}"}
{{- end }}
{{- end }}
{{- range $called := $process.optional }}
{{- if not (has $called $process.calls) }}
- {name: CLOUDMATRIX_{{ upper $called }}_URL, value: ""}
{{- end }}
{{- end }}
{{- if and $process.hasDatabase (ne $root.Values.database.mode "sqlite") }}
- name: CLOUDMATRIX_DATABASE
  valueFrom: {secretKeyRef: {name: {{ include "cloudmatrix.database" $root }}, key: {{ $name }}}}
{{- end }}
{{- if has $name (list "resource" "link" "agents") }}
- {name: CLOUDMATRIX_SUPERNODES, value: {{ $root.Values.supernodes | toJson | quote }}}
{{- if $root.Values.spec }}
- {name: CLOUDMATRIX_SPEC, value: /etc/cloudmatrix/files/supernode.yaml}
{{- end }}
{{- end }}
{{- if and (eq $name "agents") $process.values.stages }}
- {name: CLOUDMATRIX_STAGES, value: /etc/cloudmatrix/files/stages.yaml}
{{- end }}
{{- if and (eq $name "agents") $process.values.linkStages }}
- {name: CLOUDMATRIX_LINK_STAGES, value: /etc/cloudmatrix/files/link-stages.yaml}
{{- end }}
{{- if and (eq $name "infer") (not $process.values.settings.publicUrl) }}
- {name: CLOUDMATRIX_PUBLIC_URL, value: "{{ $process.scheme }}://{{ $fullname }}-infer:{{ $process.port }}"}
{{- end }}
{{- if eq $name "kube" }}
- {name: CLOUDMATRIX_ADVERTISE, value: {{ $fullname }}-kube}
- {name: CLOUDMATRIX_CERTIFICATE_NAMES, value: "{{ $fullname }}-kube.{{ $root.Release.Namespace }},{{ $fullname }}-kube.{{ $root.Release.Namespace }}.svc"}
- name: CLOUDMATRIX_KUBE_ADMIN_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "cloudmatrix.kube" $root }}, key: admin-token}}
- name: CLOUDMATRIX_KUBE_OPERATOR_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "cloudmatrix.kube" $root }}, key: operator-token}}
- name: CLOUDMATRIX_KUBE_METRICS_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "cloudmatrix.kube" $root }}, key: metrics-token, optional: true}}
{{- end }}
{{- if eq $name "operator" }}
- {name: CLOUDMATRIX_LEASE_NAMESPACE, value: {{ ternary "kube-system" (include "cloudmatrix.leaseNamespace" $root) $root.Values.kube.enabled }}}
{{- if $root.Values.kube.enabled }}
- {name: CLOUDMATRIX_KUBECONFIG, value: /etc/cloudmatrix/kube/kubeconfig}
- {name: CLOUDMATRIX_SHARED_CLUSTER, value: "false"}
{{- end }}
{{- end }}
{{- range $key, $value := $process.values.settings }}
- {name: CLOUDMATRIX_{{ $key | snakecase | upper }}, value: {{ (kindIs "string" $value) | ternary $value (toJson $value) | quote }}}
{{- end }}
{{- end }}

{{/* Security context of every container: no privileges. */}}
{{- define "cloudmatrix.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The security of a pod: (list $ user group volumesGroup). */}}
{{- define "cloudmatrix.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ index . 1 | toJson }}
runAsGroup: {{ index . 2 | toJson }}
fsGroup: {{ index . 3 | toJson }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Node selector, tolerations and affinity of a pod. */}}
{{- define "cloudmatrix.placement" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- if .Values.affinity }}
  {{- toYaml .Values.affinity | nindent 2 }}
  {{- else }}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: cloudmatrix.io/supernode, operator: DoesNotExist}
  {{- end }}
{{- end }}

{{/* A volume claim template, or nothing without persistence: (list $ "name" "size"). */}}
{{- define "cloudmatrix.claim" -}}
{{- $root := index . 0 -}}
persistentVolumeClaimRetentionPolicy:
  whenDeleted: {{ ternary "Retain" "Delete" $root.Values.persistence.retain }}
  whenScaled: Retain
volumeClaimTemplates:
  - metadata: {name: {{ index . 1 }}}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with $root.Values.persistence.storageClass }}
      storageClassName: {{ . }}
      {{- end }}
      resources: {requests: {storage: {{ index . 2 }}}}
{{- end }}
