// Members keeps a ConfigMap beside every CloudMatrixInstance that lists its nodes by rank, so that a program in the
// cluster can find them without rights on CloudMatrixInstances. It is an example of an operator written with
// controller-runtime; docs/how-to/test-your-operator.md shows how to test it against an emulated supernode.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var instanceKind = schema.GroupVersionKind{Group: "cloudmatrix.io", Version: "v1alpha1", Kind: "CloudMatrixInstance"}

func newInstance() *unstructured.Unstructured {
	instance := &unstructured.Unstructured{}
	instance.SetGroupVersionKind(instanceKind)
	return instance
}

type reconciler struct{ client.Client }

// Reconcile writes the members of one instance. The instance owns the ConfigMap, which is deleted with it.
func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	instance := newInstance()
	if err := r.Get(ctx, request.NamespacedName, instance); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if instance.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	written := &corev1.ConfigMap{}
	written.Name, written.Namespace = instance.GetName()+"-members", instance.GetNamespace()
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, written, func() error {
		written.Data = map[string]string{
			"nodes": strings.Join(nodesOf(instance), ","),
			"ready": fmt.Sprint(isReady(instance)),
		}
		return controllerutil.SetControllerReference(instance, written, r.Scheme())
	})
	return ctrl.Result{}, err
}

// nodesOf returns the nodes of an instance by rank, without spares.
func nodesOf(instance *unstructured.Unstructured) []string {
	listed, _, _ := unstructured.NestedSlice(instance.Object, "status", "members")
	ranks := map[string]int64{}
	nodes := []string{}
	for _, each := range listed {
		member, ok := each.(map[string]any)
		if role, found := member["role"]; !ok || (found && role != "member") {
			continue
		}
		node := fmt.Sprint(member["node"])
		ranks[node], _ = member["rank"].(int64)
		nodes = append(nodes, node)
	}
	sort.Slice(nodes, func(i, j int) bool { return ranks[nodes[i]] < ranks[nodes[j]] })
	return nodes
}

func isReady(instance *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(instance.Object, "status", "conditions")
	for _, each := range conditions {
		condition, _ := each.(map[string]any)
		if condition["type"] == "Ready" {
			return condition["status"] == "True"
		}
	}
	return false
}

func run() error {
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig() // from KUBECONFIG
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).For(newInstance()).Owns(&corev1.ConfigMap{}).Named("members").
		Complete(reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
