# SPDX-License-Identifier: Apache-2.0
"""The containers of a sandbox, as an engine and a runtime have them on the host: a bundle for each,
and the shim, whose working directory is the sandbox's own.

    containers = Containers(node, sandbox_id)
    containers.more = {"process": {"env": [...]}}    # what else the config.json of the next ones has
    bundle = containers.run(("/var/lib/kubelet/…/mount", "/data"))
    shutil.rmtree(bundle)        # it ended
    containers.close()

    Containers(node, id, mounts)    # one without CRI, as ctr and nerdctl start it: a sandbox by itself
    Containers(node, id, containerd="run/k3s/containerd", sandbox_api=True)   # sandboxer = "shim"
"""

import json
import secrets
import subprocess

from node import CONTAINERD, SANDBOXES, TASK


class Containers:

    def __init__(self, node, sandbox_id, mounts=None, containerd=CONTAINERD, sandbox_api=False, annotations=None):
        self.tasks = node.root / containerd / TASK
        self.sandbox_id, self.is_cri = sandbox_id, mounts is None
        self.more = {"annotations": annotations or {}}
        if not self.is_cri:
            self.tasks = self.tasks.parent / "default"
        if sandbox_api:
            bundle = node.root / containerd / SANDBOXES / sandbox_id
            (bundle / "rootfs").mkdir(parents=True)
        else:
            bundle = self.write_bundle(sandbox_id, mounts or ())
        self.shim = subprocess.Popen(
            ["containerd-shim-kata-v2", "-c", "read _", "-namespace", "k8s.io", "-id", sandbox_id],
            executable="/bin/sh", cwd=bundle, stdin=subprocess.PIPE)

    def write_bundle(self, container_id, mounts):
        bundle = self.tasks / container_id
        bundle.mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps({
            "mounts": [{"source": source, "destination": to, "type": "bind"}
                       for source, to in mounts],
            "annotations": ({"io.kubernetes.cri.sandbox-id": self.sandbox_id} if self.is_cri else {
                "nerdctl/namespace": "default"}) | self.more.get("annotations", {}),
            "process": self.more.get("process", {}), "linux": self.more.get("linux", {})}))
        return bundle

    def run(self, *mounts):
        """A container with these (source, destination); returns its bundle."""
        return self.write_bundle(secrets.token_hex(32), mounts)

    def close(self):
        self.shim.kill()
        self.shim.wait()
        self.shim.stdin.close()
