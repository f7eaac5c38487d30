{{/* Names and labels. */}}

{{- define "cloudmatrix.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "cloudmatrix.fullname" -}}
{{- $name := include "cloudmatrix.name" . }}
{{- if contains $name .Release.Name }}{{ $name = .Release.Name }}{{ else }}{{ $name = printf "%s-%s" .Release.Name $name }}{{ end }}
{{- default $name .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* Labels of every object: (list $ "component"). */}}
{{- define "cloudmatrix.labels" -}}
{{- $root := index . 0 -}}
{{ include "cloudmatrix.podLabels" . }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of pods, without the chart's version, so that a new one does not restart them: (list $ "component"). */}}
{{- define "cloudmatrix.podLabels" -}}
{{- $root := index . 0 -}}
{{ include "cloudmatrix.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: cloudmatrix
{{- end }}

{{/* Selector labels, which never change: (list $ "component"). */}}
{{- define "cloudmatrix.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "cloudmatrix.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Name, namespace and labels of an object: (list $ "component" "name"). */}}
{{- define "cloudmatrix.metadata" -}}
{{- $root := index . 0 -}}
name: {{ index . 2 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "cloudmatrix.labels" . | nindent 2 }}
{{- end }}

{{- define "cloudmatrix.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "cloudmatrix.tokens" -}}
{{- default (printf "%s-tokens" (include "cloudmatrix.fullname" .)) .Values.tokens.existingSecret }}
{{- end }}

{{- define "cloudmatrix.database" -}}
{{- default (printf "%s-database" (include "cloudmatrix.fullname" .)) .Values.database.existingSecret }}
{{- end }}

{{- define "cloudmatrix.kube" -}}
{{- default (printf "%s-kube" (include "cloudmatrix.fullname" .)) .Values.kube.existingSecret }}
{{- end }}

{{- define "cloudmatrix.leaseNamespace" -}}
{{- default .Release.Namespace .Values.operator.leaseNamespace }}
{{- end }}

{{/* Annotation of objects that are kept on uninstall, because they belong to volumes that are kept. */}}
{{- define "cloudmatrix.keep" -}}
{{- if and .Values.persistence.enabled .Values.persistence.retain }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
{{- end }}
