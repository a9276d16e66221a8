package checks

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"gateway/cmd/gateway/internal/cli"
	"gateway/cmd/gateway/internal/config"
)

const deployDir = "../../../../deploy"

// readYAML reads the only document of a file into v, which must have a field for each key.
func readYAML(t *testing.T, name string, v any) {
	t.Helper()
	f, err := os.Open(filepath.Join(deployDir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Errorf("%s: there is another document, %v", name, err)
	}
}

// A composeFile has the keys that deploy/compose.yml may have.
type composeFile struct {
	Name     string
	Logging  any `yaml:"x-logging"`
	Services map[string]composeService
	Secrets  map[string]struct{ Environment string }
	Volumes  map[string]any
}

type composeService struct {
	Image, Restart       string
	Profiles, Command    []string
	Build                struct{ Context, Target, Args any }
	EnvFile              []any `yaml:"env_file"`
	Volumes, Ports       []string
	Secrets, Tmpfs       []string
	Environment          map[string]string
	ReadOnly             bool     `yaml:"read_only"`
	CapDrop              []string `yaml:"cap_drop"`
	SecurityOpt          []string `yaml:"security_opt"`
	Init                 bool
	StopGracePeriod      string `yaml:"stop_grace_period"`
	MemLimit             string `yaml:"mem_limit"`
	PidsLimit            int    `yaml:"pids_limit"`
	Logging, Healthcheck any
}

// TestCompose checks that deploy/compose.yml confines the services as it promises, and that their
// volumes and secrets exist.
func TestCompose(t *testing.T) {
	var c composeFile
	readYAML(t, "compose.yml", &c)
	g := c.Services["gateway"]
	if !g.ReadOnly || len(g.Tmpfs) != 1 || !g.Init || len(g.Profiles) > 0 || len(g.Ports) > 0 ||
		g.StopGracePeriod != "30s" || g.PidsLimit == 0 ||
		!slices.Equal(g.Volumes, []string{"data:/data"}) {
		t.Errorf("the gateway is not confined as promised: %+v", g)
	}
	password := c.Services["grafana"].Environment["GF_SECURITY_ADMIN_PASSWORD__FILE"]
	if password != "/run/secrets/http_token" {
		t.Errorf("the password of Grafana is in %q", password)
	}
	for name, s := range c.Services {
		if !slices.Equal(s.CapDrop, []string{"ALL"}) || s.MemLimit == "" || s.Logging == nil ||
			!slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) ||
			s.Restart != "unless-stopped" {
			t.Errorf("%s is not confined as promised: %+v", name, s)
		}
		if name != "gateway" && !slices.Equal(s.Profiles, []string{"monitoring"}) {
			t.Errorf("%s runs without being asked for", name)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: others reach the port %s", name, port)
			}
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			_, volume := c.Volumes[source]
			if _, err := os.Stat(filepath.Join(deployDir, source)); err != nil && !volume {
				t.Errorf("%s: there is no volume or file %s", name, source)
			}
		}
		for _, secret := range s.Secrets {
			if _, ok := c.Secrets[secret]; !ok {
				t.Errorf("%s: there is no secret %s", name, secret)
			}
		}
	}
}

// These types have the keys that the objects in deploy/kubernetes may have.
type (
	k8sMeta struct {
		Name, Namespace string
		Labels          map[string]string
	}
	k8sSelector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	k8sProbe struct {
		Exec             struct{ Command []string }
		PeriodSeconds    int `yaml:"periodSeconds"`
		TimeoutSeconds   int `yaml:"timeoutSeconds"`
		FailureThreshold int `yaml:"failureThreshold"`
	}
	k8sContainer struct {
		Name, Image string
		Args        []string
		Env         []struct{ Name, Value string }
		Ports       []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		SecurityContext struct {
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string }
		} `yaml:"securityContext"`
		StartupProbe   k8sProbe `yaml:"startupProbe"`
		LivenessProbe  k8sProbe `yaml:"livenessProbe"`
		ReadinessProbe k8sProbe `yaml:"readinessProbe"`
		Resources      struct{ Requests, Limits map[string]string }
		VolumeMounts   []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	k8sPod struct {
		ServiceAccountName            string `yaml:"serviceAccountName"`
		AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
		EnableServiceLinks            *bool  `yaml:"enableServiceLinks"`
		TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               struct {
			RunAsNonRoot        bool                  `yaml:"runAsNonRoot"`
			RunAsUser           int                   `yaml:"runAsUser"`
			RunAsGroup          int                   `yaml:"runAsGroup"`
			FSGroup             int                   `yaml:"fsGroup"`
			FSGroupChangePolicy string                `yaml:"fsGroupChangePolicy"`
			SeccompProfile      struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		Containers []k8sContainer
		Volumes    []struct {
			Name     string
			EmptyDir struct {
				SizeLimit string `yaml:"sizeLimit"`
			} `yaml:"emptyDir"`
			ConfigMap struct{ Name string } `yaml:"configMap"`
			Secret    struct {
				SecretName  string `yaml:"secretName"`
				DefaultMode int    `yaml:"defaultMode"`
			}
		}
	}
	k8sStatefulSet struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   k8sMeta
		Spec       struct {
			Replicas        int
			ServiceName     string                `yaml:"serviceName"`
			UpdateStrategy  struct{ Type string } `yaml:"updateStrategy"`
			RetentionPolicy struct {
				WhenDeleted string `yaml:"whenDeleted"`
				WhenScaled  string `yaml:"whenScaled"`
			} `yaml:"persistentVolumeClaimRetentionPolicy"`
			Selector k8sSelector
			Template struct {
				Metadata k8sMeta
				Spec     k8sPod
			}
			VolumeClaimTemplates []struct {
				Metadata k8sMeta
				Spec     struct {
					AccessModes []string `yaml:"accessModes"`
					Resources   struct{ Requests map[string]string }
				}
			} `yaml:"volumeClaimTemplates"`
		}
	}
)

func readStatefulSet(t *testing.T) (k8sStatefulSet, k8sContainer) {
	t.Helper()
	var s k8sStatefulSet
	readYAML(t, "kubernetes/statefulset.yaml", &s)
	containers := s.Spec.Template.Spec.Containers
	if s.APIVersion != "apps/v1" || s.Kind != "StatefulSet" || len(containers) != 1 {
		t.Fatalf("%s %s with %d containers", s.APIVersion, s.Kind, len(containers))
	}
	return s, containers[0]
}

// TestKubernetesPod checks that two gateways never use one database, and that the pod complies
// with the restricted standard of Kubernetes.
func TestKubernetesPod(t *testing.T) {
	s, c := readStatefulSet(t)
	pod := s.Spec.Template.Spec
	claims := s.Spec.VolumeClaimTemplates
	if s.Spec.Replicas != 1 || len(claims) != 1 ||
		!slices.Equal(claims[0].Spec.AccessModes, []string{"ReadWriteOncePod"}) ||
		s.Spec.RetentionPolicy.WhenDeleted != "Retain" {
		t.Errorf("two could use one database, or it could be lost: %+v", s.Spec)
	}
	p := pod.SecurityContext
	if !p.RunAsNonRoot || p.RunAsUser != 10001 || p.RunAsGroup != 10001 || p.FSGroup != 10001 ||
		p.SeccompProfile.Type != "RuntimeDefault" {
		t.Errorf("pod: %+v", p)
	}
	x := c.SecurityContext
	if no := x.AllowPrivilegeEscalation; no == nil || *no || !x.ReadOnlyRootFilesystem ||
		!slices.Equal(x.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("container: %+v", x)
	}
	if no := pod.AutomountServiceAccountToken; no == nil || *no {
		t.Error("the pod has a token of Kubernetes")
	}
	if pod.TerminationGracePeriodSeconds < 30 || c.Resources.Limits["memory"] == "" ||
		c.Resources.Requests["memory"] == "" || c.Resources.Requests["cpu"] == "" {
		t.Errorf("time or resources: %+v", pod)
	}
	var volumes, mounts []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, m := range c.VolumeMounts {
		mounts = append(mounts, m.Name)
	}
	volumes = append(volumes, claims[0].Metadata.Name)
	slices.Sort(volumes)
	slices.Sort(mounts)
	if !slices.Equal(volumes, mounts) {
		t.Errorf("there are volumes %q, mounted are %q", volumes, mounts)
	}
	for _, probe := range []k8sProbe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe.TimeoutSeconds < 10 || probe.FailureThreshold < 2 || probe.PeriodSeconds == 0 {
			t.Errorf("probe: %+v", probe)
		}
		checkArguments(t, probe.Exec.Command)
	}
	checkArguments(t, append([]string{"gateway"}, c.Args...))
}

// checkArguments checks that the gateway accepts a command line.
func checkArguments(t *testing.T, words []string) {
	t.Helper()
	if len(words) == 0 || words[0] != "gateway" {
		t.Errorf("%q is no command of the gateway", words)
		return
	}
	cmd, rest, err := cli.NewCommand().Find(words[1:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil || len(cmd.Flags().Args()) > 0 {
		t.Errorf("the gateway does not take %q: %v", words, err)
	}
}

// TestKubernetesConfig checks that the configuration for Kubernetes is valid, and that the
// example of the secret has every secret that the configuration refers to.
func TestKubernetesConfig(t *testing.T) {
	_, c := readStatefulSet(t)
	text, err := readFile(filepath.Join(deployDir, "kubernetes/config.toml"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := readFile(filepath.Join(deployDir, "kubernetes/secret.example.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir, folder := t.TempDir(), ""
	for _, m := range c.VolumeMounts {
		if m.Name == "secrets" {
			folder = m.MountPath + "/"
		}
	}
	files := regexp.MustCompile(`file:`+folder+`([\w-]+)`).FindAllStringSubmatch(text, -1)
	if len(files) < 3 {
		t.Fatalf("%d secrets in config.toml", len(files))
	}
	for _, file := range files {
		if !strings.Contains(example, "  "+file[1]+": ") {
			t.Errorf("secret.example.yaml has no %s", file[1])
		}
		secret := filepath.Join(dir, file[1])
		if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "config.toml")
	text = strings.ReplaceAll(text, "file:"+folder, "file:"+dir+"/")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path, []string{"HOME=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, port, _ := strings.Cut(cfg.HTTP.Listen, ":"); port != "8790" ||
		c.Ports[0].ContainerPort != 8790 || c.Ports[0].Name != "http" {
		t.Errorf("it listens on %s, the port is %+v", cfg.HTTP.Listen, c.Ports)
	}
}

// TestKubernetesObjects checks that all objects exist and that their references to each other are
// correct.
func TestKubernetesObjects(t *testing.T) {
	set, c := readStatefulSet(t)
	label := map[string]string{"app.kubernetes.io/name": "gateway"}
	same := func(what string, got map[string]string) {
		t.Helper()
		if len(got) != 1 || got["app.kubernetes.io/name"] != "gateway" {
			t.Errorf("%s selects %v, want %v", what, got, label)
		}
	}
	same("the StatefulSet", set.Spec.Selector.MatchLabels)
	same("the pod", set.Spec.Template.Metadata.Labels)
	objects := make(map[string]map[string]any)
	names, err := filepath.Glob(filepath.Join(deployDir, "kubernetes/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, filepath.Join(deployDir, "kubernetes/monitoring/podmonitor.yaml"))
	for _, name := range names {
		var o map[string]any
		rel, _ := filepath.Rel(deployDir, name)
		readYAML(t, rel, &o)
		objects[o["apiVersion"].(string)+" "+o["kind"].(string)] = o
	}
	for _, want := range []string{"v1 Namespace", "v1 ServiceAccount", "v1 Service", "v1 Secret",
		"networking.k8s.io/v1 NetworkPolicy", "monitoring.coreos.com/v1 PodMonitor",
		"kustomize.config.k8s.io/v1beta1 Kustomization", "apps/v1 StatefulSet"} {
		if objects[want] == nil {
			t.Errorf("there is no %s among %d objects", want, len(objects))
		}
	}
	spec := func(kind string) map[string]any { return objects[kind]["spec"].(map[string]any) }
	var service struct {
		Selector map[string]string
		Ports    []struct {
			TargetPort string `yaml:"targetPort"`
		}
	}
	again(t, spec("v1 Service"), &service)
	same("the Service", service.Selector)
	if len(service.Ports) != 1 || service.Ports[0].TargetPort != c.Ports[0].Name {
		t.Errorf("the Service has the ports %+v", service.Ports)
	}
	var policy struct {
		PodSelector k8sSelector `yaml:"podSelector"`
		PolicyTypes []string    `yaml:"policyTypes"`
	}
	again(t, spec("networking.k8s.io/v1 NetworkPolicy"), &policy)
	same("the NetworkPolicy", policy.PodSelector.MatchLabels)
	if len(policy.PolicyTypes) != 2 {
		t.Errorf("the NetworkPolicy is for %q", policy.PolicyTypes)
	}
	var monitor struct {
		Selector  k8sSelector
		Endpoints []struct{ Port, Path string } `yaml:"podMetricsEndpoints"`
	}
	again(t, spec("monitoring.coreos.com/v1 PodMonitor"), &monitor)
	same("the PodMonitor", monitor.Selector.MatchLabels)
	if len(monitor.Endpoints) != 1 || monitor.Endpoints[0].Port != "http" ||
		monitor.Endpoints[0].Path != "/metrics" {
		t.Errorf("the PodMonitor has %+v", monitor.Endpoints)
	}
	var custom struct {
		Resources []string
		Images    []struct{ Name string }
	}
	again(t, objects["kustomize.config.k8s.io/v1beta1 Kustomization"], &custom)
	for _, name := range custom.Resources {
		if _, err := os.Stat(filepath.Join(deployDir, "kubernetes", name)); err != nil {
			t.Error(err)
		}
	}
	if len(custom.Images) != 1 || custom.Images[0].Name != c.Image {
		t.Errorf("kustomization.yaml names the images %v, the pod has %s", custom.Images, c.Image)
	}
}

// TestUnitWrites checks that the unit lets the gateway write the log to the file that the
// documentation names.
func TestUnitWrites(t *testing.T) {
	text, err := readFile("../../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	file := regexp.MustCompile(`\nfile = "(/.*)"\n`).FindStringSubmatch(text)
	unit, err := readFile(filepath.Join(deployDir, "gateway.service"))
	if err != nil || file == nil {
		t.Fatalf("operations.md names the log %q, %v", file, err)
	}
	for line := range strings.Lines(unit) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "LogsDirectory=")
		if ok && strings.HasPrefix(file[1], "/var/log/"+name+"/") {
			return
		}
	}
	t.Errorf("the unit can't write the log %s", file[1])
}

// calledThrough matches the programs that call commands of the gateway in containers and
// services.
var calledThrough = regexp.MustCompile(
	`^(?:docker exec (?:-it )?gateway|kubectl .* --|sudo -u gateway \S+) (gateway .*)$`)

// TestDeployDocs checks that the commands exist that the documents call in a container or as
// another user. [TestDocs] sees only commands at the beginning of a line.
func TestDeployDocs(t *testing.T) {
	for file, want := range map[string]int{"docker.md": 4, "operations.md": 3} {
		text, err := readFile(filepath.Join("../../../../docs", file))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for line := range strings.Lines(text) {
			if m := calledThrough.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				checkCommand(t, file, m[1])
				found++
			}
		}
		if found < want {
			t.Errorf("%s: %d commands, want %d at least", file, found, want)
		}
	}
}

// again decodes a part of a decoded document into v.
func again(t *testing.T, part, v any) {
	t.Helper()
	text, err := yaml.Marshal(part)
	if err == nil {
		err = yaml.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}
