// SPDX-License-Identifier: Apache-2.0

// render CHART [VALUES...] - what helm would apply: the chart by helm's own engine, with its schema for values, and
// each object read strictly as its kind, so that a misspelt field is an error. Prints the objects as one JSON list.
// render --decode FILE... does the latter with manifests.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	work := render
	if os.Args[1] == "--decode" {
		work = func(_ string, files []string) ([]runtime.RawExtension, error) { return decodeFiles(files) }
	}
	objects, err := work(os.Args[1], os.Args[2:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(objects)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(directory string, files []string) ([]runtime.RawExtension, error) {
	chart, err := loader.Load(directory)
	if err != nil {
		return nil, err
	}
	values := chartutil.Values{}
	for _, file := range files {
		more, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, err
		}
		values = chartutil.CoalesceTables(more, values)
	}
	release := chartutil.ReleaseOptions{Name: "crustd", Namespace: "kube-system", IsInstall: true, Revision: 1}
	context, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Engine{Strict: true}.Render(chart, context)
	if err != nil {
		return nil, err
	}
	return decode(texts)
}

func decodeFiles(files []string) ([]runtime.RawExtension, error) {
	objects := []runtime.RawExtension{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		more, err := decode(map[string]string{file: string(text)})
		if err != nil {
			return nil, err
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

func decode(texts map[string]string) ([]runtime.RawExtension, error) {
	names := []string{}
	for name := range texts {
		if path.Ext(name) == ".yaml" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	if err := monitoring.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	objects := []runtime.RawExtension{}
	for _, name := range names {
		documents := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(texts[name])))
		for {
			document, err := documents.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if len(bytes.TrimSpace(document)) == 0 {
				continue
			}
			if _, _, err := decoder.Decode(document, nil, nil); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, document)
			}
			raw, err := yaml.ToJSON(document)
			if err != nil {
				return nil, err
			}
			objects = append(objects, runtime.RawExtension{Raw: raw})
		}
	}
	return objects, nil
}
