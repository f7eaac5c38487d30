// Informer keeps a client-go shared informer over config maps and one over a custom resource in step with an API server,
// and prints, for every line it reads from standard input, what its caches hold: one JSON object of names to
// resourceVersions. It knows nothing of the server but a kubeconfig, and survives restarts as any Go operator would.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "informer KUBECONFIG GROUP VERSION PLURAL")
		os.Exit(2)
	}
	config := must(clientcmd.BuildConfigFromFlags("", os.Args[1]))
	resource := schema.GroupVersionResource{Group: os.Args[2], Version: os.Args[3], Resource: os.Args[4]}
	ctx := context.Background()

	typed := informers.NewSharedInformerFactory(must(kubernetes.NewForConfig(config)), 0)
	maps := typed.Core().V1().ConfigMaps()
	mapsInformer := maps.Informer()
	free := dynamicinformer.NewDynamicSharedInformerFactory(must(dynamic.NewForConfig(config)), 0)
	customs := free.ForResource(resource)
	customsInformer := customs.Informer()
	typed.Start(ctx.Done())
	free.Start(ctx.Done())
	for !mapsInformer.HasSynced() || !customsInformer.HasSynced() {
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println(`"synced"`)

	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		held := map[string]string{}
		for _, one := range must(maps.Lister().List(labels.Everything())) {
			held["configmaps/"+one.Namespace+"/"+one.Name] = one.ResourceVersion
		}
		for _, one := range must(customs.Lister().List(labels.Everything())) {
			object := one.(*unstructured.Unstructured)
			held[resource.Resource+"/"+object.GetNamespace()+"/"+object.GetName()] = object.GetResourceVersion()
		}
		if err := out.Encode(held); err != nil {
			return
		}
	}
}
