# SPDX-License-Identifier: Apache-2.0
"""A pod specification as arguments of podman: as a kubelet and a container runtime would have it.

Unknown members are refused, so that no part of a manifest is ignored silently.
"""

# Of a pod; what has no meaning for one container on one node is only named.
POD = {"hostPID", "hostNetwork", "containers", "volumes", "terminationGracePeriodSeconds",
       "automountServiceAccountToken", "enableServiceLinks", "nodeSelector", "tolerations",
       "priorityClassName"}
# The probes are run by the test, the ports only declare.
CONTAINER = {"name", "image", "command", "args", "env", "securityContext", "resources",
             "volumeMounts", "ports", "startupProbe", "readinessProbe", "livenessProbe"}
SECURITY = {"runAsUser", "readOnlyRootFilesystem", "allowPrivilegeEscalation", "capabilities",
            "seccompProfile", "appArmorProfile", "seLinuxOptions"}

NODE_NAME = "node-of-this-test"


class ManifestError(Exception):
    """A manifest has something that this does not understand."""


def only(known, mapping, where):
    unknown = set(mapping) - known
    if unknown:
        raise ManifestError(f"{where}: {', '.join(sorted(unknown))}")
    return mapping


def mebibytes(text):
    if not text.endswith("Mi"):
        raise ManifestError(f"a memory limit of {text}")
    return int(text[:-2])


def prepare_volumes(pod):
    """Shell commands that do what a kubelet does about host paths before the pod starts."""
    test = {"Directory": "test -d", "DirectoryOrCreate": "mkdir -p -m 755"}
    return [f"{test[volume['hostPath']['type']]} {volume['hostPath']['path']}"
            for volume in pod["volumes"] if "hostPath" in volume]


def run_arguments(pod, image, config_maps):
    """`podman run` in the background. config_maps: names and the directories that hold them."""
    only(POD, pod, "the pod")
    container, = pod["containers"]
    only(CONTAINER, container, "the container")
    words = ["podman", "run", "--detach", f"--name={container['name']}", "--pull=never"]
    if pod.get("hostPID"):
        words += ["--pid=host"]
    words += ["--network=host" if pod.get("hostNetwork") else "--network=none",
              f"--stop-timeout={pod['terminationGracePeriodSeconds']}"]
    words += security(container["securityContext"]) + limits(container["resources"])
    words += [f"--env={entry['name']}={value_of(entry)}" for entry in container.get("env", [])]
    words += mounts(pod, container, config_maps)
    program = container.get("command", []) + container.get("args", [])
    return words + [f"--entrypoint={program[0]}", image, *program[1:]]


def init_arguments(pod, image):
    """`podman run` of its one init container, until that has ended; it mounts nothing."""
    container, = pod["initContainers"]
    only(CONTAINER - {"volumeMounts", "ports"}, container, "the init container")
    words = ["podman", "run", "--rm", "--pull=never", "--network=none"]
    if pod.get("hostPID"):
        words += ["--pid=host"]
    words += security(container["securityContext"]) + limits(container["resources"])
    words += [f"--env={entry['name']}={value_of(entry)}" for entry in container.get("env", [])]
    program = container["command"] + container.get("args", [])
    return words + [f"--entrypoint={program[0]}", image, *program[1:]]


def value_of(entry):
    """Of a variable; what a kubelet puts in the place of a field of the pod."""
    if "value" in entry:
        return entry["value"]
    only({"spec.nodeName"}, {entry["valueFrom"]["fieldRef"]["fieldPath"]: ""}, entry["name"])
    return NODE_NAME


def security(context):
    only(SECURITY, context, "securityContext")
    words = [f"--user={context['runAsUser']}"]
    if context["readOnlyRootFilesystem"]:
        words += ["--read-only", "--read-only-tmpfs=false"]
    if not context["allowPrivilegeEscalation"]:
        words += ["--security-opt=no-new-privileges"]
    only({"drop", "add"}, context["capabilities"], "capabilities")
    words += [f"--cap-drop={name}" for name in context["capabilities"].get("drop", [])]
    words += [f"--cap-add={name}" for name in context["capabilities"].get("add", [])]
    for name, option in (("seccompProfile", "seccomp"), ("appArmorProfile", "apparmor")):
        if only({"type"}, context[name], name)["type"] != "Unconfined":
            raise ManifestError(f"{name}: {context[name]}")
        words += [f"--security-opt={option}=unconfined"]
    # Podman hides it, and neither containerd nor CRI-O does for a kubelet.
    words += ["--security-opt=unmask=/sys/dev/block"]
    label = only({"type"}, context["seLinuxOptions"], "seLinuxOptions")["type"]
    return words + [f"--security-opt=label=type:{label}"]


def limits(resources):
    """Of the requests, what a cgroup has: a kubelet makes a millicore 1.024 shares."""
    requests = only({"cpu", "memory"}, resources["requests"], "requests")
    memory = mebibytes(only({"memory"}, resources["limits"], "limits")["memory"])
    shares = int(requests["cpu"].removesuffix("m")) * 1024 // 1000
    return [f"--memory={memory}m", f"--memory-swap={memory}m", f"--cpu-shares={max(2, shares)}"]


def mounts(pod, container, config_maps):
    sources = {}
    for volume in pod["volumes"]:
        if "configMap" in volume:
            sources[volume["name"]] = config_maps[volume["configMap"]["name"]]
        else:
            sources[volume["name"]] = only({"path", "type"}, volume["hostPath"], "hostPath")["path"]
    words = []
    for mount in container["volumeMounts"]:
        only({"name", "mountPath", "readOnly", "mountPropagation"}, mount, "volumeMounts")
        propagation = {"HostToContainer": "rslave", "None": "rprivate"}[
            mount.get("mountPropagation", "None")]
        access = "ro" if mount.get("readOnly") else "rw"
        words += [f"--volume={sources[mount['name']]}:{mount['mountPath']}:{access},{propagation}"]
    return words
