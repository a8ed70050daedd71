package podruntime_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podruntime"
)

var updatePage = flag.Bool("update.fields", false, "write docs/fields.md")

// proofs name the tests that prove a field. The longest beginning of its path
// counts. Those of integration look from inside a container on containerd.
var proofs = map[string]string{
	"spec.": "TestConfigGolden",

	"spec.activeDeadlineSeconds":         "TestAPodPastItsDeadlineEndsAndIsFailedOnlyWhenNothingRuns",
	"spec.affinity":                      "TestNodeAffinity",
	"spec.nodeSelector":                  "TestNodeAffinity",
	"spec.os":                            "TestWhatIsNotMappedIsRefusedByItsPath",
	"spec.priority":                      "TestOOMScores",
	"spec.imagePullSecrets":              "TestAGuardedRegistryGetsTheRightCredentials",
	"spec.readinessGates":                "TestReadinessGates",
	"spec.restartPolicy":                 "TestMayRestart",
	"spec.terminationGracePeriodSeconds": "TestGrace",
	"spec.serviceAccountName":            "TestField",

	"spec.hostname":          "TestHostname",
	"spec.hostnameOverride":  "TestHostname",
	"spec.subdomain":         "TestHostname",
	"spec.setHostnameAsFQDN": "TestFQDNFitsIntoTheKernel",
	"spec.hostAliases":       "TestHosts",
	"spec.dnsPolicy":         "TestDNSByPolicy",
	"spec.dnsConfig":         "TestMerge",
	"spec.runtimeClassName":  "TestRuntimeClassesAreHandlers",
	"spec.initContainers":    "TestInitContainers",
	"spec.resources":         "TestConfigGolden",
	"spec.securityContext":   "TestConfigGolden",

	"spec.securityContext.fsGroup":             "TestWhatTheGroupGets",
	"spec.securityContext.fsGroupChangePolicy": "TestOnRootMismatchLooksAtTheTopOnly",
	"spec.securityContext.sysctls":             "TestSysctls",
	"spec.securityContext.runAsNonRoot":        "TestNonRoot",

	"spec.volumes":            "TestFilesOfAVolume",
	"spec.volumes[].name":     "TestAllProblemsAreReportedTogether",
	"spec.volumes[].emptyDir": "TestMemorySize",
	"spec.volumes[].hostPath": "TestHostPathTypes",
	"spec.volumes[].image":    "TestImageVolumes",

	"spec.containers[].env":                              "TestBuild",
	"spec.containers[].envFrom":                          "TestBuild",
	"spec.containers[].command":                          "TestBuild",
	"spec.containers[].args":                             "TestBuild",
	"spec.containers[].image":                            "TestPolicies",
	"spec.containers[].imagePullPolicy":                  "TestPolicies",
	"spec.containers[].lifecycle.postStart":              "TestPostStart",
	"spec.containers[].lifecycle.preStop":                "TestPreStop",
	"spec.containers[].lifecycle.stopSignal":             "TestConfigGolden",
	"spec.containers[].resizePolicy":                     "TestPlansOfAResize",
	"spec.containers[].restartPolicy":                    "TestMayRestart",
	"spec.containers[].restartPolicyRules":               "TestMayRestart",
	"spec.containers[].securityContext.runAsNonRoot":     "TestNonRoot",
	"spec.containers[].terminationMessage":               "TestExitMessage",
	"spec.containers[].volumeMounts[].subPath":           "TestSubPathsAreBound",
	"spec.containers[].volumeMounts[].subPathExpr":       "TestSubPath",
	"spec.containers[].volumeMounts[].recursiveReadOnly": "TestVolumeMounts",
	"spec.ephemeralContainers[]":                         "TestRegularContainers",
}

func proof(path string) string {
	best := ""
	for prefix := range proofs {
		if strings.HasPrefix(path, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return proofs[best]
}

// docs/fields.md has a line for each field of a pod, and is made from the table.
func TestFieldsPage(t *testing.T) {
	const page = "../docs/fields.md"
	var b strings.Builder
	b.WriteString(`# Every field of a pod

Made from the table in ` + "`podruntime/fields.go`" + ` by ` + "`go test ./podruntime -update.fields`" + `; a test fails when it is not up to date. A field
that is refused keeps the pod from running: its status names the field and says why. What "harmless" fields ask for is somebody
else's work. The containers of all three lists have the same fields.

| Field | What becomes of it | Proof |
|---|---|---|
`)
	fieldsOf(reflect.TypeFor[corev1.PodSpec](), "spec", func(path, note string) {
		test := "TestWhatIsNotMappedIsRefusedByItsPath"
		switch {
		case note == "":
			note, test = "honoured", proof(path)
		case !strings.HasPrefix(note, "refused"):
			test = "TestWhatIsMappedPasses"
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` |\n", path, note, test)
	})
	if *updatePage {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), b.String()); diff != "" {
		t.Errorf("docs/fields.md is not what the table says; go test ./podruntime -update.fields (-have +want):\n%s", diff)
	}
}

// fieldsOf visits each field as the table decides about it: no deeper than there is
// an entry.
func fieldsOf(typ reflect.Type, path string, visit func(path, note string)) {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ.Kind() == reflect.Slice:
		fieldsOf(typ.Elem(), path+"[]", visit)
		return
	case typ.Kind() == reflect.Map:
		for _, name := range []string{"cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "other"} {
			decide(typ.Elem(), path+"["+name+"]", visit)
		}
		return
	}
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			fieldsOf(f.Type, path, visit)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		decide(f.Type, path+"."+name, visit)
	}
}

func decide(typ reflect.Type, path string, visit func(path, note string)) {
	same := strings.HasPrefix(path, "spec.initContainers[].") ||
		strings.HasPrefix(path, "spec.ephemeralContainers[].") && path != "spec.ephemeralContainers[].targetContainerName"
	if same {
		return // as those of containers
	}
	note, inside, ok := podruntime.Note(path)
	switch {
	case !ok:
		visit(path, "refused: not supported by this version")
	case inside:
		fieldsOf(typ, path, visit)
	default:
		visit(path, note)
	}
}
