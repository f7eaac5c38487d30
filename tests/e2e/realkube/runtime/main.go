// Runtime keeps the caches of a controller-runtime manager in step with an API server, as a Go operator made with
// kubebuilder does: a typed cache of config maps, an unstructured one of a custom resource, and a controller that is
// called for every change of either. For every line on standard input it prints what the caches hold and what the
// controller last saw: two JSON objects of names to resourceVersions.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// seen is what the controllers were called for: the resourceVersion each object had then; those that were gone are not in it.
type seen struct {
	sync.Mutex
	versions map[string]string
}

// watch adds a controller of one kind that notes what it finds in the cache.
func (s *seen) watch(mgr manager.Manager, name string, empty func() client.Object) {
	found := func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		object := empty()
		err := mgr.GetClient().Get(ctx, request.NamespacedName, object)
		s.Lock()
		defer s.Unlock()
		key := name + "/" + request.String()
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, err
		}
		if err != nil {
			delete(s.versions, key)
		} else {
			s.versions[key] = object.GetResourceVersion()
		}
		return reconcile.Result{}, nil
	}
	check(builder.ControllerManagedBy(mgr).Named(name).For(empty()).Complete(reconcile.Func(found)))
}

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "runtime KUBECONFIG GROUP VERSION KIND PLURAL")
		os.Exit(2)
	}
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	config := must(clientcmd.BuildConfigFromFlags("", os.Args[1]))
	kind := schema.GroupVersionKind{Group: os.Args[2], Version: os.Args[3], Kind: os.Args[4]}
	plural := os.Args[5]
	mgr := must(manager.New(config, manager.Options{
		Metrics: server.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	}))
	custom := func() client.Object {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		return object
	}
	called := &seen{versions: map[string]string{}}
	called.watch(mgr, "configmaps", func() client.Object { return &corev1.ConfigMap{} })
	called.watch(mgr, plural, custom)
	ctx := context.Background()
	go func() { check(mgr.Start(ctx)) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		os.Exit(1)
	}
	fmt.Println(`"synced"`)

	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		held := map[string]string{}
		maps := &corev1.ConfigMapList{}
		check(mgr.GetCache().List(ctx, maps))
		for _, one := range maps.Items {
			held["configmaps/"+one.Namespace+"/"+one.Name] = one.ResourceVersion
		}
		customs := &unstructured.UnstructuredList{}
		customs.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		check(mgr.GetCache().List(ctx, customs))
		for _, one := range customs.Items {
			held[plural+"/"+one.GetNamespace()+"/"+one.GetName()] = one.GetResourceVersion()
		}
		called.Lock()
		check(out.Encode(held))
		check(out.Encode(called.versions))
		called.Unlock()
	}
}
