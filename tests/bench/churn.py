# SPDX-License-Identifier: Apache-2.0
"""A crowd of which pods come and go: half of them under Kata's Go runtime, half under the Rust one.

    with Churn(scratch, volumes=4000) as churn:
        churn.start()
        churn.wait_settled()
        churn.replace(pods=600, per_second=10)
        churn.wait_settled()

A pod ends as on a real node: its VMM exits, its runtime removes its state, its CSI driver the
metadata; in whatever order. The first few pods stay, because their devices grow.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import time

from crowd import PER_SANDBOX, Crowd, numbers_of, sandbox_id, volume_path

TASKS = "run/containerd/io.containerd.runtime.v2.task/k8s.io"


class Churn(Crowd):
    """Odd pods are the Rust runtime's."""

    def __init__(self, scratch, volumes, *, settings=None, **options):
        self.pods = []  # that can be replaced, oldest first
        self.random = random.Random(volumes)
        super().__init__(scratch, volumes, by_hand=False,
                         settings={"paths.bundles": f"/{TASKS}", "resize.qemu_monitor": "main"} |
                         (settings or {}), **options)

    # -- a pod comes

    def _add_pod(self, sandbox):
        if sandbox >= self.growing:
            self.pods.append(sandbox)
        super()._add_pod(sandbox)

    def _is_rust(self, sandbox):
        return sandbox % 2 == 1 and sandbox >= self.growing

    def _record(self, number):
        if not self._is_rust(number // PER_SANDBOX):
            super()._record(number)

    def _add_sandbox(self, sandbox):
        if not self._is_rust(sandbox):
            self._write_bundle(sandbox, "sandbox", [])
            super()._add_sandbox(sandbox)
            self._write_bundle(sandbox, "container", list(map(volume_path, numbers_of(sandbox))))
            return
        state = self._state(sandbox)
        state.mkdir(parents=True, mode=0o700)
        (state / "state.json").write_text(json.dumps(
            {"sandbox_type": "virt_container", "hypervisor": {"hypervisor_type": "qemu"}}))
        self._write_bundle(sandbox, "sandbox", [])
        self.host.say(f"sandbox {self._monitor(sandbox)} -")
        self._add_drives(sandbox)
        self._write_bundle(sandbox, "container", list(map(volume_path, numbers_of(sandbox))))

    def _monitor(self, sandbox):
        if not self._is_rust(sandbox):
            return super()._monitor(sandbox)
        return self._bundle(sandbox, "sandbox") / "qmp.sock"

    def _state(self, sandbox):
        return self.node.root / "run/kata" / sandbox_id(sandbox)

    def _bundle(self, sandbox, kind):
        """Of the sandbox itself, or of its one container."""
        name = sandbox_id(sandbox) if kind == "sandbox" else sandbox_id(f"{kind} of {sandbox}")
        return self.node.root / TASKS / name

    def _write_bundle(self, sandbox, kind, volumes):
        bundle = self._bundle(sandbox, kind)
        bundle.mkdir(parents=True, mode=0o700)
        mounts = [{"destination": f"/srv/data-{number}", "type": "bind", "source": path}
                  for number, path in enumerate(volumes)]
        (bundle / "config.json").write_text(json.dumps({
            "ociVersion": "1.1.0", "mounts": mounts,
            "annotations": {"io.kubernetes.cri.container-type": kind,
                            "io.kubernetes.cri.sandbox-id": sandbox_id(sandbox)}}))

    # -- a pod goes

    def _remove_pod(self, sandbox):
        steps = [self._end_vmm, self._remove_state, self._unstage]
        self.random.shuffle(steps)
        for step in steps:
            step(sandbox)
        for number in numbers_of(sandbox):
            self.node.path(self._device(number)).unlink()

    def _end_vmm(self, sandbox):
        """Its sockets are the host's."""
        for pids in (self.vmm_pids, self.shim_pids):
            os.kill(pids.pop(sandbox), signal.SIGKILL)
        self.host.say(f"end {self._monitor(sandbox)}")

    def _remove_state(self, sandbox):
        for kind in ("container", "sandbox"):
            shutil.rmtree(self._bundle(sandbox, kind))
        if self._is_rust(sandbox):
            shutil.rmtree(self._state(sandbox))
        else:
            self.node.end_sandbox(sandbox_id(sandbox))

    def _unstage(self, sandbox):
        for number in numbers_of(sandbox):
            self.node.unstage(volume_path(number))

    # -- churn

    def replace(self, pods, per_second):
        """Ends so many of the oldest pods, and starts as many new ones."""
        started = time.monotonic()
        following = max(self.pods) + 1
        for number in range(pods):
            time.sleep(max(0.0, started + number / per_second - time.monotonic()))
            self._remove_pod(self.pods.pop(0))
            self._add_pod(following + number)

    # -- what the daemon holds

    @property
    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def watches(self):
        """inotify's. Descriptors come and go meanwhile, but not that one."""
        count = 0
        for name in os.listdir(f"/proc/{self.pid}/fdinfo"):
            with contextlib.suppress(FileNotFoundError), \
                    open(f"/proc/{self.pid}/fdinfo/{name}", encoding="ascii") as info:
                count += sum(line.startswith("inotify ") for line in info)
        return count

    @property
    def database_bytes(self):
        """Without what waits in the log to be written there."""
        return self.database.stat().st_size
