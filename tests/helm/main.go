// Renders a chart like Helm's engine, with the functions that this chart uses: text/template with Sprig, include,
// toYaml, .Values, .Release and .Chart. See https://helm.sh/docs/chart_template_guide/
//
// main CHART RELEASE NAMESPACE < values.yaml, which override the values of the chart.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"github.com/ghodss/yaml"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func merge(below, above map[string]interface{}) map[string]interface{} {
	for name, value := range above {
		inner, isMap := value.(map[string]interface{})
		old, wasMap := below[name].(map[string]interface{})
		if isMap && wasMap {
			value = merge(old, inner)
		}
		below[name] = value
	}
	return below
}

func read(content []byte) map[string]interface{} {
	found := map[string]interface{}{}
	check(yaml.Unmarshal(content, &found))
	return found
}

func main() {
	folder, release, namespace := os.Args[1], os.Args[2], os.Args[3]
	content, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	check(err)
	given, err := io.ReadAll(os.Stdin)
	check(err)
	values := merge(read(content), read(given))
	content, err = os.ReadFile(filepath.Join(folder, "Chart.yaml"))
	check(err)
	chart := map[string]interface{}{}
	for name, value := range read(content) {
		chart[strings.ToUpper(name[:1])+name[1:]] = value
	}
	all := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	functions["include"] = func(name string, value interface{}) (string, error) {
		var text bytes.Buffer
		err := all.ExecuteTemplate(&text, name, value)
		return text.String(), err
	}
	all.Funcs(functions)
	names, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	check(err)
	sort.Strings(names)
	for _, name := range names {
		content, err := os.ReadFile(name)
		check(err)
		_, err = all.New(filepath.Base(name)).Parse(string(content))
		check(err)
	}
	root := map[string]interface{}{
		"Values":  values,
		"Chart":   chart,
		"Release": map[string]interface{}{"Name": release, "Namespace": namespace, "Service": "Helm"},
	}
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), "_") {
			continue
		}
		var text bytes.Buffer
		check(all.ExecuteTemplate(&text, filepath.Base(name), root))
		fmt.Printf("---\n# Source: %s\n%s\n", filepath.Base(name), strings.TrimSpace(text.String()))
	}
}
