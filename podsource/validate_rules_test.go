package podsource_test

import (
	"strings"
	"testing"

	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
)

// rules has one line per rule: what stands in a pod that is good otherwise, and
// the beginning of the one fault that it has; "" is none. What begins with "c "
// stands in the container, with "v " it is the source of volume v, with "a " an
// annotation.
var rules = []struct{ text, want string }{
	// Container: image, ports, restart.
	{"initContainers: [{name: i, image: x, ports: [{containerPort: 1, hostPort: 2}, {containerPort: 3, hostPort: 2}]}]", "spec.initContainers[0].ports[1].hostPort: Duplicate value"},
	{"initContainers: [{name: i, image: x, ports: [{containerPort: 1, hostPort: 2}]}]\nc ports: [{containerPort: 1, hostPort: 2}]", ""},
	{"c image: ' x'", `spec.containers[0].image: Invalid value: " x": must not have leading or trailing whitespace`},
	{"c ports: [{containerPort: 1, hostIP: '::ffff:1.2.3.4'}]", "spec.containers[0].ports[0].hostIP: Invalid value"},
	{"c ports: [{containerPort: 1, hostIP: 'FE80:0::1'}]", ""},
	{"c ports: [{containerPort: 1, name: a--b}]", `spec.containers[0].ports[0].name: Invalid value: "a--b"`},
	{"c restartPolicy: Sometimes", `spec.containers[0].restartPolicy: Unsupported value: "Sometimes"`},
	{"c restartPolicy: Never, restartPolicyRules: [{action: Jump, exitCodes: {operator: In, values: [1]}}]", `spec.containers[0].restartPolicyRules[0].action: Unsupported value: "Jump"`},
	{"c restartPolicy: Never, restartPolicyRules: [{action: Restart}]", "spec.containers[0].restartPolicyRules[0].exitCodes: Required value"},
	{"c restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: Is, values: [1]}}]", `spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: "Is"`},
	{"c restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In}}]", "spec.containers[0].restartPolicyRules[0].exitCodes.values: Invalid value: 0"},
	{"c restartPolicy: Never, restartPolicyRules: [" + strings.Repeat("{action: Restart, exitCodes: {operator: In, values: [1]}}, ", 21) + "]", "spec.containers[0].restartPolicyRules: Invalid value: 21: must be at most 20"},

	// Resize.
	{"c resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}]", `spec.containers[0].resizePolicy[0].resourceName: Unsupported value: "disk"`},
	{"c resizePolicy: [{resourceName: cpu}]", "spec.containers[0].resizePolicy[0].restartPolicy: Required value"},
	{"c resizePolicy: [{resourceName: cpu, restartPolicy: Maybe}]", `spec.containers[0].resizePolicy[0].restartPolicy: Unsupported value: "Maybe"`},
	{"c resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]", `spec.containers[0].resizePolicy[1].resourceName: Duplicate value: "cpu"`},
	{"c restartPolicy: Never, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]", "spec.containers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when `restartPolicy` is 'Never'"},

	// Lifecycle and probes.
	{"c lifecycle: {postStart: {}}", "spec.containers[0].lifecycle.postStart: Required value"},
	{"c lifecycle: {preStop: {sleep: {seconds: 1}, exec: {command: [x]}}}", "spec.containers[0].lifecycle.preStop.sleep: Forbidden: may not specify more than 1 handler type"},
	{"c lifecycle: {preStop: {httpGet: {port: 1, scheme: GOPHER}}}", `spec.containers[0].lifecycle.preStop.httpGet.scheme: Unsupported value: "GOPHER"`},
	{"c lifecycle: {preStop: {httpGet: {port: 'not a name'}}}", "spec.containers[0].lifecycle.preStop.httpGet.port: Invalid value"},
	{"c lifecycle: {preStop: {httpGet: {port: 1, httpHeaders: [{name: 'a b'}]}}}", `spec.containers[0].lifecycle.preStop.httpGet.httpHeaders[0].name: Invalid value: "a b"`},
	{"c lifecycle: {preStop: {sleep: {seconds: -1}}}", "spec.containers[0].lifecycle.preStop.sleep.seconds: Invalid value: -1"},
	{"c lifecycle: {preStop: {tcpSocket: {port: 0}}}", "spec.containers[0].lifecycle.preStop.tcpSocket.port: Invalid value: 0"},
	{"c lifecycle: {stopSignal: SIGTERM}", "spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with an empty `spec.os.name`"},
	{"os: {name: linux}\nc lifecycle: {stopSignal: TERM}", `spec.containers[0].lifecycle.stopSignal: Invalid value: "TERM"`},
	{"os: {name: linux}\nc lifecycle: {stopSignal: SIGRTMIN+16}", `spec.containers[0].lifecycle.stopSignal: Invalid value: "SIGRTMIN+16"`},
	{"os: {name: linux}\nc lifecycle: {stopSignal: SIGRTMAX-14}", ""},
	{"os: {name: windows}\nc lifecycle: {stopSignal: SIGHUP}", `spec.containers[0].lifecycle.stopSignal: Unsupported value: "SIGHUP"`},
	{"c livenessProbe: {httpGet: {port: 70000}}", "spec.containers[0].livenessProbe.httpGet.port: Invalid value: 70000"},
	{"c livenessProbe: {httpGet: {port: 1, protocol: HTTP3}}", `spec.containers[0].livenessProbe.httpGet.protocol: Unsupported value: "HTTP3"`},
	{"c livenessProbe: {grpc: {port: 0}}", "spec.containers[0].livenessProbe.grpc.port: Invalid value: 0"},
	{"c livenessProbe: {exec: {}}", "spec.containers[0].livenessProbe.exec.command: Required value"},
	{"c startupProbe: {exec: {command: [x]}, successThreshold: 2}", "spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1"},
	{"c livenessProbe: {exec: {command: [x]}, terminationGracePeriodSeconds: 0}", "spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"},
	{"c readinessProbe: {exec: {command: [x]}, periodSeconds: -1}", "spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1"},
	{"c readinessProbe: {exec: {command: [x]}, timeoutSeconds: -1}", "spec.containers[0].readinessProbe.timeoutSeconds: Invalid value: -1"},
	{"c readinessProbe: {exec: {command: [x]}, failureThreshold: -1}", "spec.containers[0].readinessProbe.failureThreshold: Invalid value: -1"},

	// Environment.
	{"c env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]", `spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels"`},
	{"c env: [{name: A, valueFrom: {fieldRef: {fieldPath: 'metadata.labels[''a b'']'}}}]", `spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "a b"`},
	{"c env: [{name: A, valueFrom: {fieldRef: {fieldPath: 'metadata.annotations[''example.com/A'']'}}}]", ""},
	{"c env: [{name: A, valueFrom: {fieldRef: {fieldPath: 'metadata.labels[''x'}}}]", `spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels['x"`},
	{"c env: [{name: A, valueFrom: {fieldRef: {fieldPath: 'spec.nodeName[''x'']'}}}]", `spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value`},
	{"c env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name, apiVersion: v2}}}]", `spec.containers[0].env[0].valueFrom.fieldRef.apiVersion: Unsupported value: "v2"`},
	{"c env: [{name: A, valueFrom: {fieldRef: {}}}]", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Required value"},
	{"c env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1M}}}]", `spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Unsupported value: "1M": supported values: "1m", "1"`},
	{"c env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 3}}}]", `spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Unsupported value: "3"`},
	{"c env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}, {name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}]", ""},
	{"c env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi}}}]", ""},
	{"c env: [{name: A, valueFrom: {resourceFieldRef: {resource: many.hugepages-2Mi}}}]", `spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "many.hugepages-2Mi"`},
	{"c env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, containerName: other}}}]", `spec.containers[0].env[0].valueFrom.resourceFieldRef.containerName: Not found: "other"`},
	{"c env: [{name: A, valueFrom: {configMapKeyRef: {key: k}}}]", "spec.containers[0].env[0].valueFrom.configMapKeyRef.name: Required value"},
	{"c env: [{name: A, valueFrom: {configMapKeyRef: {name: A_b, key: k}}}]", `spec.containers[0].env[0].valueFrom.configMapKeyRef.name: Invalid value: "A_b"`},
	{"c env: [{name: A, valueFrom: {secretKeyRef: {name: s}}}]", "spec.containers[0].env[0].valueFrom.secretKeyRef.key: Required value"},
	{"c env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: a/b}}}]", `spec.containers[0].env[0].valueFrom.secretKeyRef.key: Invalid value: "a/b"`},
	{"c env: [{name: A, value: x, valueFrom: {secretKeyRef: {name: s, key: k}}}]", "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"},
	{"c env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}, fieldRef: {fieldPath: metadata.name}}}]", "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not have more than one field specified at a time"},
	{"c env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a/b, key: K}}}]", ""},
	{"c env: [{name: A, valueFrom: {fileKeyRef: {volumeName: w, path: a, key: K}}}]", `spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: "w"`},
	{"v hostPath: {path: /a}\nc env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a, key: K}}}]", `spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "v": must be the name of an emptyDir volume`},
	{"c env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: ..a, key: K}}}]", `spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: "..a": must not start with '..'`},
	{"c env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: /a, key: K}}}]", `spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: "/a": must be a relative path`},
	{"c env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a}}}]", "spec.containers[0].env[0].valueFrom.fileKeyRef.key: Required value"},
	{"c env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a, key: " + strings.Repeat("k", 129) + "}}}]", "spec.containers[0].env[0].valueFrom.fileKeyRef.key: Too long: may not be more than 128 bytes"},
	{"c envFrom: [{}]", "spec.containers[0].envFrom[0]: Invalid value"},
	{"c envFrom: [{configMapRef: {}}]", "spec.containers[0].envFrom[0].configMapRef.name: Required value"},
	{"c envFrom: [{secretRef: {name: A_b}}]", `spec.containers[0].envFrom[0].secretRef.name: Invalid value: "A_b"`},
	{"c envFrom: [{prefix: 'a=', secretRef: {name: s}}]", `spec.containers[0].envFrom[0].prefix: Invalid value: "a="`},
	{"c envFrom: [{secretRef: {name: s}, configMapRef: {name: s}}]", "spec.containers[0].envFrom[0]: Invalid value: \"\": may not have more than one field specified at a time"},

	// Resources.
	{"c resources: {limits: {cpu: 1, hugepages-2Mi: 3Mi}}", `spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "3Mi": must be a multiple of the page size`},
	{"c resources: {limits: {cpu: 1, hugepages-many: 2Mi}}", `spec.containers[0].resources.limits[hugepages-many]: Invalid value: "hugepages-many": must name a page size`},
	{"c resources: {limits: {cpu: 1, hugepages-2Mi: 4Mi}, requests: {hugepages-2Mi: 2Mi}}", `spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "2Mi": must be equal to hugepages-2Mi limit of 4Mi`},
	{"c resources: {requests: {ephemeral-storage: 2Gi}, limits: {ephemeral-storage: 1Gi}}", `spec.containers[0].resources.requests[ephemeral-storage]: Invalid value: "2Gi": must be less than or equal to ephemeral-storage limit of 1Gi`},
	{"c resources: {limits: {kubernetes.io/batch: 1}}", `spec.containers[0].resources.limits[kubernetes.io/batch]: Invalid value`},
	{"c resources: {limits: {requests.example.com/a: 1}}", `spec.containers[0].resources.limits[requests.example.com/a]: Invalid value`},
	{"c resources: {limits: {example.com/gpu: 9000000000000000000}}", ""},
	{"resources: {limits: {cpu: 1}}\nc resources: {limits: {cpu: 2}, requests: {cpu: 1}}", `spec.containers[0].resources.limits[cpu]: Invalid value: "2": must be less than or equal to pod limits of 1`},
	{"resources: {requests: {ephemeral-storage: 1}}", `spec.resources.requests[ephemeral-storage]: Unsupported value`},
	{"resources: {limits: {cpu: 1}}\nc resources: {limits: {hugepages-2Mi: 4Mi}}", ""},
	{"resources: {limits: {hugepages-2Mi: 4Mi}}", "spec.resources: Forbidden: HugePages require cpu or memory"},
	{"overhead: {cpu: -1}", `spec.overhead[cpu]: Invalid value: "-1": must be greater than or equal to 0`},
	{"overhead: {hugepages-2Mi: 1}", `spec.overhead[hugepages-2Mi]: Invalid value: "1": must be a multiple of the page size`},

	// Mounts.
	{"c volumeMounts: [{name: v, mountPath: '/a:b'}]", ""},
	{"c volumeMounts: [{name: v, mountPath: /a, subPath: a, subPathExpr: b}]", `spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: "b": subPathExpr and subPath are mutually exclusive`},
	{"c volumeMounts: [{name: v, mountPath: /a, subPathExpr: /$(A)}]", `spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: "/$(A)": must be a relative path`},
	{"c volumeMounts: [{name: v, mountPath: /a, subPath: ..a}]", ""},
	{"c volumeMounts: [{name: v, mountPath: /a, mountPropagation: Both}]", `spec.containers[0].volumeMounts[0].mountPropagation: Unsupported value: "Both"`},
	{"c securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]", ""},
	{"c volumeMounts: [{name: v, mountPath: /a, recursiveReadOnly: Enabled}]", "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly is true"},
	{"c volumeMounts: [{name: v, mountPath: /a, readOnly: true, mountPropagation: HostToContainer, recursiveReadOnly: IfPossible}]", "spec.containers[0].volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified"},
	{"c volumeMounts: [{name: v, mountPath: /a, readOnly: true, recursiveReadOnly: Often}]", `spec.containers[0].volumeMounts[0].recursiveReadOnly: Unsupported value: "Often"`},
	{"c volumeMounts: [{name: v, mountPath: /a, bindMountOptions: [noatime]}]", `spec.containers[0].volumeMounts[0].bindMountOptions[0]: Unsupported value: "noatime"`},
	{"c volumeMounts: [{name: v, mountPath: /a, bindMountOptions: [nodev, nodev]}]", `spec.containers[0].volumeMounts[0].bindMountOptions[1]: Duplicate value: "nodev"`},
	{"v image: {reference: x}\nc volumeMounts: [{name: v, mountPath: /a, bindMountOptions: [nodev]}]", "spec.containers[0].volumeMounts[0].bindMountOptions: Forbidden: may not be set for image volumes"},
	{"c volumeDevices: [{name: v, devicePath: /dev/x}]", `spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode`},
	{"c volumeDevices: [{name: w, devicePath: /dev/x}]", `spec.containers[0].volumeDevices[0].name: Not found: "w"`},

	// Container security.
	{"c securityContext: {procMount: Unmasked}", "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"},
	{"hostUsers: false\nc securityContext: {procMount: Unmasked}", ""},
	{"c securityContext: {procMount: Half}", `spec.containers[0].securityContext.procMount: Unsupported value: "Half"`},
	{"c securityContext: {runAsGroup: 4294967296}", "spec.containers[0].securityContext.runAsGroup: Invalid value: 4294967296"},
	{"c securityContext: {seccompProfile: {type: None}}", `spec.containers[0].securityContext.seccompProfile.type: Unsupported value: "None"`},
	{"c securityContext: {seccompProfile: {type: Localhost, localhostProfile: ''}}", "spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost"},
	{"c securityContext: {seccompProfile: {type: RuntimeDefault, localhostProfile: a}}", "spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: \"a\": can only be set when seccomp type is Localhost"},
	{"c securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../a}}", `spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: "../a": must not contain '..'`},
	{"c securityContext: {appArmorProfile: {type: Localhost}}", "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value"},
	{"c securityContext: {appArmorProfile: {type: Localhost, localhostProfile: ' a'}}", `spec.containers[0].securityContext.appArmorProfile.localhostProfile: Invalid value: " a": must not be padded with whitespace`},
	{"c securityContext: {appArmorProfile: {type: Localhost, localhostProfile: " + strings.Repeat("a", 4096) + "}}", "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes"},
	{"c securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}}", "spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"},

	// Pod security.
	{"securityContext: {supplementalGroups: [1, -1]}", "spec.securityContext.supplementalGroups[1]: Invalid value: -1"},
	{"securityContext: {supplementalGroupsPolicy: Some}", `spec.securityContext.supplementalGroupsPolicy: Unsupported value: "Some"`},
	{"securityContext: {fsGroup: -1}", "spec.securityContext.fsGroup: Invalid value: -1"},
	{"securityContext: {fsGroupChangePolicy: Some}", `spec.securityContext.fsGroupChangePolicy: Unsupported value: "Some"`},
	{"securityContext: {seLinuxChangePolicy: Some}", `spec.securityContext.seLinuxChangePolicy: Unsupported value: "Some"`},
	{"securityContext: {sysctls: [{name: a.b, value: x}, {name: a/b, value: x}]}", `spec.securityContext.sysctls[1].name: Duplicate value: "a.b"`},
	{"securityContext: {sysctls: [{value: x}]}", "spec.securityContext.sysctls[0].name: Required value"},
	{"hostNetwork: true\nsecurityContext: {sysctls: [{name: net/core.somaxconn, value: '1'}]}", `spec.securityContext.sysctls[0].name: Invalid value: "net/core.somaxconn": may not be set with 'hostNetwork' enabled`},
	{"hostIPC: true\nsecurityContext: {sysctls: [{name: kernel.shmmax, value: '1'}]}", `spec.securityContext.sysctls[0].name: Invalid value: "kernel.shmmax": may not be set with 'hostIPC' enabled`},
	{"hostUsers: false\nhostNetwork: true", "spec.hostNetwork: Forbidden: may not be true when hostUsers is false"},
	{"hostUsers: false\nhostPID: true", "spec.hostPID: Forbidden: may not be true when hostUsers is false"},
	{"hostUsers: false\nhostIPC: true", "spec.hostIPC: Forbidden: may not be true when hostUsers is false"},
	{"hostPID: true\nshareProcessNamespace: true", "spec.shareProcessNamespace: Forbidden"},
	{"os: {name: plan9}", `spec.os.name: Unsupported value: "plan9"`},
	{"os: {name: linux}\nsecurityContext: {windowsOptions: {runAsUserName: me}}", "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod"},
	{"os: {name: linux}\nc securityContext: {windowsOptions: {runAsUserName: me}}", "spec.containers[0].securityContext.windowsOptions: Forbidden"},
	{"os: {name: windows}\nhostPID: true", "spec.hostPID: Forbidden: cannot be set for a windows pod"},
	{"os: {name: windows}\nsecurityContext: {fsGroup: 1}", "spec.securityContext.fsGroup: Forbidden"},
	{"os: {name: windows}\nc securityContext: {privileged: false}", "spec.containers[0].securityContext.privileged: Forbidden"},

	// Annotations.
	{"a container.apparmor.security.beta.kubernetes.io/other: unconfined", `metadata.annotations[container.apparmor.security.beta.kubernetes.io/other]: Invalid value: "other": container not found`},
	{"a container.apparmor.security.beta.kubernetes.io/app: strict", `metadata.annotations[container.apparmor.security.beta.kubernetes.io/app]: Invalid value: "strict": invalid AppArmor profile name`},
	{"a container.apparmor.security.beta.kubernetes.io/app: localhost/", `metadata.annotations[container.apparmor.security.beta.kubernetes.io/app]: Invalid value: "localhost/"`},
	{"a container.apparmor.security.beta.kubernetes.io/app: localhost/mine", ""},

	// Network.
	{"subdomain: a.b", `spec.subdomain: Invalid value: "a.b"`},
	{"hostnameOverride: a.b", ""},
	{"hostnameOverride: A", `spec.hostnameOverride: Invalid value: "A"`},
	{"hostnameOverride: " + strings.Repeat("a", 65), "spec.hostnameOverride: Invalid value"},
	{"hostnameOverride: a\nhostNetwork: true", "spec.hostnameOverride: Forbidden: may not be set together with hostNetwork"},
	{"hostnameOverride: a\nsetHostnameAsFQDN: true", "spec.hostnameOverride: Forbidden: may not be set together with setHostnameAsFQDN"},
	{"hostAliases: [{ip: 1.2.3.4, hostnames: [a, A_b]}]", `spec.hostAliases[0].hostnames[1]: Invalid value: "A_b"`},
	{"hostAliases: [{ip: 1.2.3.04, hostnames: [a]}]", `spec.hostAliases[0].ip: Invalid value: "1.2.3.04": must not have leading 0s`},
	{"dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]}", "spec.dnsConfig.nameservers: Invalid value"},
	{"dnsConfig: {nameservers: [dns.example.com]}", `spec.dnsConfig.nameservers[0]: Invalid value: "dns.example.com"`},
	{"dnsConfig: {searches: [" + strings.Repeat("a,", 33) + "]}", "spec.dnsConfig.searches: Invalid value: 33: must not have more than 32 search paths"},
	{"dnsConfig: {searches: [" + strings.Repeat(strings.Repeat("a", 60)+"."+strings.Repeat("b", 60)+",", 17) + "]}", "spec.dnsConfig.searches: Invalid value: 17: must not have more than 2048 characters (including spaces) in the search list"},
	{"dnsConfig: {searches: ['a b']}", `spec.dnsConfig.searches[0]: Invalid value: "a b"`},
	{"dnsConfig: {searches: [_tcp.example.com., .]}", ""},
	{"dnsConfig: {options: [{value: x}]}", "spec.dnsConfig.options[0].name: Required value"},
	{"readinessGates: [{conditionType: 'a b'}]", `spec.readinessGates[0].conditionType: Invalid value: "a b"`},
	{"runtimeClassName: A_b", `spec.runtimeClassName: Invalid value: "A_b"`},
	{"activeDeadlineSeconds: 2147483648", "spec.activeDeadlineSeconds: Invalid value: 2147483648"},
	{"activeDeadlineSeconds: -1", "spec.activeDeadlineSeconds: Invalid value: -1: must be greater than or equal to 1"},

	// Volumes.
	{"v configMap: {}", "spec.volumes[0].configMap.name: Required value"},
	{"v configMap: {name: c, defaultMode: 512}", "spec.volumes[0].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive"},
	{"v configMap: {name: c, items: [{path: a}]}", "spec.volumes[0].configMap.items[0].key: Required value"},
	{"v configMap: {name: c, items: [{key: k}]}", "spec.volumes[0].configMap.items[0].path: Required value"},
	{"v configMap: {name: c, items: [{key: k, path: /a}]}", `spec.volumes[0].configMap.items[0].path: Invalid value: "/a": must be a relative path`},
	{"v configMap: {name: c, items: [{key: k, path: a/../b}]}", `spec.volumes[0].configMap.items[0].path: Invalid value: "a/../b": must not contain '..'`},
	{"v configMap: {name: c, items: [{key: k, path: ..data}]}", `spec.volumes[0].configMap.items[0].path: Invalid value: "..data": must not start with '..'`},
	{"v configMap: {name: c, items: [{key: k, path: a, mode: -1}]}", "spec.volumes[0].configMap.items[0].mode: Invalid value: -1"},
	{"v configMap: {name: c, defaultUser: -1}", "spec.volumes[0].configMap.defaultUser: Invalid value: -1"},
	{"v secret: {}", "spec.volumes[0].secret.secretName: Required value"},
	{"v secret: {secretName: A_b}", `spec.volumes[0].secret.secretName: Invalid value: "A_b"`},
	{"v secret: {secretName: s, items: [{key: k, path: a, mode: 1000}]}", "spec.volumes[0].secret.items[0].mode: Invalid value: 1000"},
	{"v downwardAPI: {items: [{path: a}]}", "spec.volumes[0].downwardAPI.items[0]: Required value"},
	{"v downwardAPI: {items: [{path: a, fieldRef: {fieldPath: spec.nodeName}}]}", `spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath: Unsupported value: "spec.nodeName"`},
	{"v downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.labels}}]}", ""},
	{"v downwardAPI: {items: [{path: a, resourceFieldRef: {resource: limits.cpu}}]}", "spec.volumes[0].downwardAPI.items[0].resourceFieldRef.containerName: Required value"},
	{"v downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {resource: limits.cpu, containerName: app}}]}", "spec.volumes[0].downwardAPI.items[0]: Invalid value: \"resource\": can not specify both fieldRef & resourceFieldRef"},
	{"v projected: {defaultMode: 512}", "spec.volumes[0].projected.defaultMode: Invalid value: 512"},
	{"v projected: {sources: [{}]}", "spec.volumes[0].projected.sources[0]: Required value"},
	{"v projected: {sources: [{secret: {name: s}, configMap: {name: c}}]}", "spec.volumes[0].projected.sources[0].configMap: Forbidden: may not specify more than 1 volume type per source"},
	{"v projected: {sources: [{secret: {}}]}", "spec.volumes[0].projected.sources[0].secret.name: Required value"},
	{"v projected: {sources: [{configMap: {name: c, items: [{key: k, path: ..a}]}}]}", "spec.volumes[0].projected.sources[0].configMap.items[0].path: Invalid value"},
	{"v projected: {sources: [{configMap: {name: c, items: [{key: k, path: a}]}}, {downwardAPI: {items: [{path: ./a, fieldRef: {fieldPath: metadata.name}}]}}]}", `spec.volumes[0].projected.sources[1].downwardAPI.items[0].path: Invalid value: "a": conflicting duplicate paths`},
	{"v image: {}", "spec.volumes[0].image.reference: Required value"},
	{"v image: {reference: 'x '}", "spec.volumes[0].image.reference: Invalid value"},
	{"v image: {reference: x, pullPolicy: Maybe}", `spec.volumes[0].image.pullPolicy: Unsupported value: "Maybe"`},
	{"v emptyDir: {medium: HugePages-big}", `spec.volumes[0].emptyDir.medium: Invalid value: "HugePages-big": must name a page size`},
	{"v emptyDir: {mode: 1024}", "spec.volumes[0].emptyDir.mode: Invalid value: 1024"},
	{"v emptyDir: {medium: Memory, sizeLimit: 1Mi, mode: 1023}", ""},

	// What is for the scheduler.
	{"tolerations: [{key: a, operator: Exists, value: b}]", `spec.tolerations[0].value: Invalid value: "b"`},
	{"tolerations: [{key: a, operator: Lt, value: x}]", `spec.tolerations[0].value: Invalid value: "x": must be an integer`},
	{"tolerations: [{key: a, value: 'a b'}]", `spec.tolerations[0].value: Invalid value: "a b"`},
	{"tolerations: [{key: a, effect: NoSchedule, tolerationSeconds: 1}]", `spec.tolerations[0].effect: Invalid value: "NoSchedule"`},
	{"nodeSelector: {a: 'b c'}", "spec.nodeSelector"},
	{"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value"},
	{"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}]}]}}}", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value"},
	{"affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]}}", "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be between 1 and 100, inclusive"},
	{"affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchFields: [{key: spec.x, operator: Exists}]}}]}}", "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchFields[0].key: Unsupported value"},
	{"affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{}]}}", "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value"},
	{"affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a, matchLabelKeys: [x]}}]}}", "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.matchLabelKeys: Forbidden"},
	{"topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]", "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0"},
	{"topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]", "spec.topologySpreadConstraints[0].topologyKey: Required value"},
	{"topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: Panic}]", `spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Panic"`},
	{"topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, minDomains: 1}]", "spec.topologySpreadConstraints[0].minDomains: Invalid value: 1"},
	{"topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}, {maxSkew: 2, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]", "spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}: Duplicate value"},
	{"schedulingGroup: {}", "spec.schedulingGroup.podGroupName: Required value"},
	{"evictionResponders: [{name: x, priority: 1}]", "spec.evictionResponders[0].name: Invalid value"},
	{"evictionResponders: [{name: example.com/x}]", "spec.evictionResponders[0].priority: Required value"},
	{"preemptionPolicy: Always", `spec.preemptionPolicy: Unsupported value: "Always"`},
}

// ruled writes the pod of a rule.
func ruled(text string) string {
	container, source, annotations, spec := "", "", "", []string{}
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "c "); ok {
			container = rest
		} else if rest, ok := strings.CutPrefix(line, "v "); ok {
			source = ", " + rest
		} else if rest, ok := strings.CutPrefix(line, "a "); ok {
			annotations = "\n  annotations: {" + rest + "}"
		} else {
			spec = append(spec, line)
		}
	}
	if !strings.HasPrefix(container, "image:") {
		container = "image: x, " + container
	}
	return manifest("a"+annotations, append(spec, "volumes: [{name: v"+source+"}]", "containers: [{name: app, "+container+"}]")...)
}

func TestEveryRule(t *testing.T) {
	for _, rule := range rules {
		t.Run(strings.ReplaceAll(rule.text, "\n", "; "), func(t *testing.T) {
			_, err := podsource.DecodeManifest([]byte(ruled(rule.text)), from)
			if rule.want == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			all := err.(podsource.DecodeErrors)
			require.Len(t, all, 1, "%v", err)
			require.True(t, strings.HasPrefix(all[0].Err.Error(), rule.want), "got  %s\nwant %s", all[0].Err, rule.want)
		})
	}
}
