package lint_test

import (
	"bufio"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

func manifests(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	return paths
}

// kinds are the types that the manifests may hold.
func kinds() map[string]func() any {
	return map[string]func() any{
		"v1 Namespace":                           func() any { return new(core.Namespace) },
		"v1 ConfigMap":                           func() any { return new(core.ConfigMap) },
		"v1 Service":                             func() any { return new(core.Service) },
		"apps/v1 Deployment":                     func() any { return new(apps.Deployment) },
		"batch/v1 Job":                           func() any { return new(batch.Job) },
		"policy/v1 PodDisruptionBudget":          func() any { return new(policy.PodDisruptionBudget) },
		"autoscaling/v2 HorizontalPodAutoscaler": func() any { return new(autoscaling.HorizontalPodAutoscaler) },
		"networking.k8s.io/v1 Ingress":           func() any { return new(networking.Ingress) },
		"networking.k8s.io/v1 NetworkPolicy":     func() any { return new(networking.NetworkPolicy) },
	}
}

// objects decodes every manifest strictly: a field that does not exist is an
// error.
func objects(t *testing.T) (all []any) {
	t.Helper()
	for _, path := range manifests(t) {
		if filepath.Base(path) == "kustomization.yaml" {
			continue
		}
		documents := utilyaml.NewYAMLReader(newReader(read(t, path)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			var of meta.TypeMeta
			if err := yaml.Unmarshal(document, &of); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			make, ok := kinds()[of.APIVersion+" "+of.Kind]
			if !ok {
				t.Errorf("%s holds a %s %s", path, of.APIVersion, of.Kind)
				continue
			}
			object := make()
			if err := yaml.UnmarshalStrict(document, object); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			all = append(all, object)
		}
	}
	return all
}

func TestKustomization_lists_every_manifest(t *testing.T) {
	t.Parallel()
	var file struct {
		APIVersion string                                   `json:"apiVersion"`
		Kind       string                                   `json:"kind"`
		Namespace  string                                   `json:"namespace"`
		Resources  []string                                 `json:"resources"`
		Images     []struct{ Name, NewName, NewTag string } `json:"images"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, "../kubernetes/kustomization.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, path := range manifests(t) {
		if name := filepath.Base(path); name != "kustomization.yaml" && !slices.Contains(file.Resources, name) {
			t.Errorf("%s is not applied", name)
		}
	}
	for _, name := range file.Resources {
		read(t, "../kubernetes/"+name)
	}
	if len(file.Images) != 1 || file.Images[0].Name != "pictor" {
		t.Errorf("images %v", file.Images)
	}
}

// pods are the pods that the manifests make, by the name of what makes them.
func pods(all []any) map[string]core.PodTemplateSpec {
	found := make(map[string]core.PodTemplateSpec)
	for _, o := range all {
		switch o := o.(type) {
		case *apps.Deployment:
			found[o.Name] = o.Spec.Template
		case *batch.Job:
			found[o.Name] = o.Spec.Template
		}
	}
	return found
}

func TestPods_hold_no_privilege(t *testing.T) {
	t.Parallel()
	for name, pod := range pods(objects(t)) {
		of := pod.Spec.SecurityContext
		if of == nil || of.RunAsNonRoot == nil || !*of.RunAsNonRoot || of.SeccompProfile == nil || of.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s may run as root, or make any system call", name)
		}
		if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken {
			t.Errorf("%s gets a token of the cluster", name)
		}
		for _, c := range pod.Spec.Containers {
			s := c.SecurityContext
			if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
				s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
				s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0 {
				t.Errorf("%s/%s holds privileges that it does not need", name, c.Name)
			}
			if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				t.Errorf("%s/%s does not say what it needs", name, c.Name)
			}
		}
	}
}

// Selectors, ports and probes name what is there.
func TestManifests_fit_together(t *testing.T) {
	t.Parallel()
	all := objects(t)
	made := pods(all)
	selects := func(what string, by map[string]string, ports ...intstr.IntOrString) {
		hit := false
		for name, pod := range made {
			if !labels.SelectorFromSet(by).Matches(labels.Set(pod.Labels)) {
				continue
			}
			hit = true
			for _, port := range ports {
				if port.Type == intstr.String && pod.Spec.Containers[0].Args[0] != "migrate" && !hasPort(pod, port.StrVal) {
					t.Errorf("%s: %s has no port %s", what, name, port.StrVal)
				}
			}
		}
		if !hit {
			t.Errorf("%s selects no pod", what)
		}
	}
	services := make(map[string]*core.Service)
	for _, o := range all {
		switch o := o.(type) {
		case *core.Service:
			services[o.Name] = o
			for _, p := range o.Spec.Ports {
				selects("service "+o.Name, o.Spec.Selector, p.TargetPort)
			}
		case *policy.PodDisruptionBudget:
			selects("budget "+o.Name, o.Spec.Selector.MatchLabels)
		case *networking.NetworkPolicy:
			for _, rule := range o.Spec.Ingress {
				for _, p := range rule.Ports {
					selects("policy "+o.Name, o.Spec.PodSelector.MatchLabels, *p.Port)
				}
			}
		case *apps.Deployment:
			selects("deployment "+o.Name, o.Spec.Selector.MatchLabels)
			c := o.Spec.Template.Spec.Containers[0]
			for _, probe := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil || !hasPort(o.Spec.Template, probe.HTTPGet.Port.StrVal) || !strings.HasSuffix(probe.HTTPGet.Path, "z") {
					t.Errorf("deployment %s: a probe asks nobody", o.Name)
				}
			}
		case *autoscaling.HorizontalPodAutoscaler:
			if _, ok := made[o.Spec.ScaleTargetRef.Name]; !ok {
				t.Errorf("%s scales %s, which is not there", o.Name, o.Spec.ScaleTargetRef.Name)
			}
		}
	}
	for _, o := range all {
		ingress, ok := o.(*networking.Ingress)
		if !ok {
			continue
		}
		for _, rule := range ingress.Spec.Rules {
			for _, path := range rule.HTTP.Paths {
				to := path.Backend.Service
				s := services[to.Name]
				if s == nil || !slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == to.Port.Name }) {
					t.Errorf("%s%s leads to %s:%s, which is not there", rule.Host, path.Path, to.Name, to.Port.Name)
				}
			}
		}
	}
}

func hasPort(pod core.PodTemplateSpec, name string) bool {
	return slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p core.ContainerPort) bool { return p.Name == name })
}

func newReader(s string) *bufio.Reader { return bufio.NewReader(strings.NewReader(s)) }
