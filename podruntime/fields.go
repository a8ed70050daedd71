package podruntime

import (
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// verdict is what becomes of a field that is set.
type verdict struct {
	// inside: its parts have entries of their own.
	inside bool
	// note says for people why it is no more than honoured.
	note string
	// judge says what is wrong with the value, seen in the struct that it is in;
	// nothing when it is fine. Nil accepts every value.
	judge func(v, in reflect.Value) string
}

var (
	// inside fields are looked into.
	inside = verdict{inside: true}
	// honoured fields are mapped for every value.
	honoured = verdict{}
	// harmless fields speak to the control plane: they are done with when the pod
	// has reached a node, or ask for nothing that a node would do.
	harmless = verdict{note: "not a node's affair"}
	// windows fields are for another system.
	windows = refused("is for Windows, and this node runs Linux")
)

func refused(why string) verdict {
	return verdict{note: "refused: " + why, judge: func(_, _ reflect.Value) string { return why }}
}

// needs refuses a field and says what this version lacks.
func needs(what string) verdict {
	return refused("needs " + what + ", which this version does not have")
}

// only accepts the given values, those that ask for nothing special.
func only[T bool | string](values ...T) verdict {
	return verdict{note: fmt.Sprintf("only %v", values), judge: func(v, _ reflect.Value) string {
		for _, ok := range values {
			if v.Equal(reflect.ValueOf(ok).Convert(v.Type())) {
				return ""
			}
		}
		return unsupported
	}}
}

// table has a verdict for each field. The key is the field's path, with [] for each
// element of a list and [name] for a resource. A field without an entry is refused.
type table map[string]verdict

// under moves a table of parts, whose keys begin with . or [], below a field. The
// field itself is looked into.
func (t table) under(field string) table {
	moved := table{field: inside}
	for key, v := range t {
		moved[field+key] = v
	}
	return moved
}

// with adds the entries of other tables.
func (t table) with(others ...table) table {
	for _, o := range others {
		maps.Copy(t, o)
	}
	return t
}

// all is a table of fields that are honoured for every value.
func all(fields ...string) table {
	t := table{}
	for _, f := range fields {
		t[f] = honoured
	}
	return t
}

// What several fields have in common.
func fieldRef() table    { return all(".apiVersion", ".fieldPath") }
func resourceRef() table { return all(".containerName", ".resource", ".divisor") }
func keyRef() table      { return all(".name", ".key", ".optional") }
func keyToPath() table   { return all("[].key", "[].path", "[].mode", "[].user") }
func namedObject() table { return all(".name", ".optional") }
func seLinux() table     { return all(".user", ".role", ".type", ".level") }
func profile() table     { return all(".type", ".localhostProfile") }
func resourceList() table {
	return all("[cpu]", "[memory]", "[hugepages-*]", "[ephemeral-storage]")
}

// files are the parts of a volume that is made of files.
func files() table { return all(".defaultMode", ".defaultUser") }

func downwardItems() table {
	return all("[].path", "[].mode", "[].user").with(fieldRef().under("[].fieldRef"), resourceRef().under("[].resourceFieldRef"))
}

// hook is a lifecycle handler. A tcpSocket is refused when it is run, as the API
// documents it.
func hook() table {
	return table{}.with(
		all(".command").under(".exec"),
		all(".path", ".port", ".host", ".scheme").with(all("[].name", "[].value").under(".httpHeaders")).under(".httpGet"),
		all(".port", ".host").under(".tcpSocket"),
		all(".seconds").under(".sleep"),
	)
}

// podFields is the whole of what is mapped of a pod spec beside its containers.
var podFields = table{
	// Where the pod runs was decided before it came here. A node checks nodeSelector
	// and required node affinity once more, at admission.
	"nodeName":                  harmless,
	"schedulerName":             harmless,
	"tolerations":               harmless, // the taints they tolerate are an API server's
	"affinity":                  inside,
	"affinity.podAffinity":      harmless,
	"affinity.podAntiAffinity":  harmless,
	"affinity.nodeAffinity":     honoured,
	"nodeSelector":              honoured,
	"topologySpreadConstraints": harmless,
	"schedulingGates":           harmless,
	"schedulingGroup":           harmless,
	"preemptionPolicy":          harmless,
	"resourceClaims":            needs("dynamic resource allocation"),

	// Without an API server there are no services to link to, and a service
	// account shows itself only through a token volume.
	"enableServiceLinks":           harmless,
	"serviceAccount":               harmless,
	"automountServiceAccountToken": only(false),

	"os":      inside,
	"os.name": only("linux"),

	"securityContext.windowsOptions":      windows,
	"securityContext.seLinuxChangePolicy": harmless, // about mounts of CSI drivers

	"volumes[].persistentVolumeClaim":                   needs("an API server"),
	"volumes[].ephemeral":                               needs("an API server"),
	"volumes[].csi":                                     needs("a plug-in"),
	"volumes[].emptyDir.sizeLimit":                      sizeLimit,
	"volumes[].projected.sources[].serviceAccountToken": needs("an API server"),
	"volumes[].projected.sources[].clusterTrustBundle":  needs("an API server"),
	"volumes[].projected.sources[].podCertificate":      needs("an API server"),

	"containers":          inside,
	"initContainers":      inside,
	"ephemeralContainers": inside,
}.with(
	all("priority", "priorityClassName", // both decide about the OOM score
		"serviceAccountName", // the downward API shows it
		"restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds",
		"hostNetwork", "hostPID", "hostIPC", "hostUsers", "shareProcessNamespace",
		"hostname", "hostnameOverride", "subdomain", "setHostnameAsFQDN", "dnsPolicy", "runtimeClassName"),
	all("[].name").under("imagePullSecrets"),
	all("[].conditionType").under("readinessGates"),
	all("[].ip", "[].hostnames").under("hostAliases"),
	all(".nameservers", ".searches").with(all("[].name", "[].value").under(".options")).under("dnsConfig"),
	resourceList().under("overhead"),
	resourceList().under(".requests").with(resourceList().under(".limits")).under("resources"),

	all(".runAsUser", ".runAsGroup", ".runAsNonRoot", ".supplementalGroups", ".supplementalGroupsPolicy", ".fsGroup", ".fsGroupChangePolicy").with(
		seLinux().under(".seLinuxOptions"), profile().under(".seccompProfile"), profile().under(".appArmorProfile"),
		all("[].name", "[].value").under(".sysctls")).under("securityContext"),

	all("[].name").under("volumes"),
	all(".path", ".type").under("volumes[].hostPath"),
	all(".medium", ".mode").under("volumes[].emptyDir"),
	namedObject().with(files(), keyToPath().under(".items")).under("volumes[].configMap"),
	all(".secretName", ".optional").with(files(), keyToPath().under(".items")).under("volumes[].secret"),
	files().with(downwardItems().under(".items")).under("volumes[].downwardAPI"),
	all(".reference", ".pullPolicy").under("volumes[].image"),
	files().with(table{}.under(".sources")).under("volumes[].projected"),
	namedObject().with(keyToPath().under(".items")).under("volumes[].projected.sources[].configMap"),
	namedObject().with(keyToPath().under(".items")).under("volumes[].projected.sources[].secret"),
	downwardItems().under(".items").under("volumes[].projected.sources[].downwardAPI"),
)

// containerFields is the same for the containers of the three lists.
var containerFields = table{
	"resources.claims":                    needs("dynamic resource allocation"),
	"resources.limits[ephemeral-storage]": needs("eviction"),
	"volumeDevices":                       needs("a persistent volume"),
	"livenessProbe":                       needs("a prober"),
	"readinessProbe":                      needs("a prober"),
	"startupProbe":                        needs("a prober"),
	"securityContext.windowsOptions":      windows,
}.with(
	all("name", "targetContainerName", // the latter of ephemeral containers
		"image", "imagePullPolicy", "command", "args", "workingDir", "stdin", "stdinOnce", "tty",
		"restartPolicy", "terminationMessagePath", "terminationMessagePolicy"),
	all("[].action").with(all(".operator", ".values").under("[].exitCodes")).under("restartPolicyRules"),
	all("[].name", "[].value").with(
		fieldRef().under(".fieldRef").with(resourceRef().under(".resourceFieldRef"), keyRef().under(".configMapKeyRef"), keyRef().under(".secretKeyRef"),
			all(".volumeName", ".path", ".key", ".optional").under(".fileKeyRef")).under("[].valueFrom")).under("env"),
	all("[].prefix").with(namedObject().under("[].configMapRef"), namedObject().under("[].secretRef")).under("envFrom"),
	all("[].name", "[].hostPort", "[].containerPort", "[].protocol", "[].hostIP").under("ports"),
	resourceList().under(".requests").with(all("[cpu]", "[memory]", "[hugepages-*]").under(".limits")).under("resources"),
	all("[].resourceName", "[].restartPolicy").under("resizePolicy"),
	all("[].name", "[].readOnly", "[].mountPath", "[].subPath", "[].subPathExpr", "[].recursiveReadOnly", "[].mountPropagation").under("volumeMounts"),
	all(".stopSignal").with(hook().under(".postStart"), hook().under(".preStop")).under("lifecycle"),
	all(".privileged", ".runAsUser", ".runAsGroup", ".runAsNonRoot", ".readOnlyRootFilesystem", ".allowPrivilegeEscalation", ".procMount").with(
		seLinux().under(".seLinuxOptions"), profile().under(".seccompProfile"), profile().under(".appArmorProfile"),
		all(".add", ".drop").under(".capabilities")).under("securityContext"),
)

// sizeLimit of a directory on disk is kept by eviction; a tmpfs keeps its own.
var sizeLimit = verdict{note: "of medium Memory and HugePages only", judge: func(_, in reflect.Value) string {
	if e, ok := in.Interface().(corev1.EmptyDirVolumeSource); ok && e.Medium == corev1.StorageMediumDefault {
		return "of a directory on disk needs eviction, which this version does not have"
	}
	return ""
}}
