# SPDX-License-Identifier: Apache-2.0
"""The control plane of a cluster: etcd, API server, controller manager and scheduler, on this machine.

    with ControlPlane(programs, kubelet_port) as control_plane:
        control_plane.begin()
        control_plane.start()
        control_plane.request("GET", "/api/v1/nodes")

Not in the node: as on any cluster they are elsewhere, and here they run on processors that nobody
emulates. All listen on 127.0.0.1, at ports that were free, so that several may run at once. Everybody is
let in, because nobody else is there. The programs end with the process that started them.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from tunnel import Tunnel

TOKEN = "test-token"
START_SECONDS = 300
PAUSE = 0.5
PORTS = range(20000, 30000)


class ControlPlaneError(Exception):
    """A program has not started, or the API server refuses."""


def free_ports(number):
    """Taken at the same time, so that they differ. Below those that connections are given, which other tests
    make meanwhile."""
    listeners = []
    for port in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError):
            listeners.append(socket.create_server(("127.0.0.1", port)))
        if len(listeners) == number:
            break
    ports = [one.getsockname()[1] for one in listeners]
    for one in listeners:
        one.close()
    return ports


def kubeconfig(server):
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "node",
        "clusters": [{"name": "node", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "node", "context": {"cluster": "node", "user": "admin"}}]})


class ControlPlane:
    """programs: a directory that has them by their names. kubelet: the port here that leads to the kubelet."""

    def __init__(self, programs, kubelet):
        self.scratch = tempfile.TemporaryDirectory(prefix="crust-control-plane-", ignore_cleanup_errors=True)
        self.directory = pathlib.Path(self.scratch.name)
        self.programs = pathlib.Path(programs)
        self.etcd_port, self.peer_port, self.port = free_ports(3)
        self.proxy_port = None
        self.key = self.directory / "key.pem"
        self.config = self.directory / "kubeconfig"
        self.config.write_text(kubeconfig(f"https://127.0.0.1:{self.port}"))
        self.processes = {}
        self.tunnel = Tunnel(self.directory / "kubelet.sock", kubelet)

    # -- programs

    def begin(self):
        """Has begun when start() is called: it takes as long as a node boots."""
        self.key.write_text(self.run("service-account-key"))
        tokens = self.directory / "tokens"
        tokens.write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        peer = f"http://127.0.0.1:{self.peer_port}"
        etcd = f"http://127.0.0.1:{self.etcd_port}"
        self.spawn("etcd", f"--data-dir={self.directory}/etcd", "--unsafe-no-fsync",
                   f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
                   f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                   f"--initial-cluster=default={peer}")
        self.spawn("kube-apiserver", f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
                   f"--secure-port={self.port}", f"--cert-dir={self.directory}/certificates",
                   # Nobody asks for the API server by the service that it would be in the cluster.
                   "--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1",
                   "--service-cluster-ip-range=192.0.2.0/24",
                   "--authorization-mode=AlwaysAllow", f"--token-auth-file={tokens}",
                   "--disable-admission-plugins=ServiceAccount", "--service-account-issuer=https://node",
                   f"--service-account-key-file={self.key}",
                   f"--service-account-signing-key-file={self.key}",
                   f"--egress-selector-config-file={self.write_egress()}",
                   "--kubelet-preferred-address-types=InternalIP",
                   # The first asks more of etcd than Debian's can do; the second is for config/deploy/guest-agent.
                   "--feature-gates=SizeBasedListCostEstimate=false,MutatingAdmissionPolicy=true",
                   "--runtime-config=admissionregistration.k8s.io/v1beta1=true")
        self.spawn("kubectl", f"--kubeconfig={self.config}", "proxy", "--port=0",
                   "--accept-hosts=^(127\\.0\\.0\\.1|10\\.0\\.2\\.2)$")

    def start(self):
        """Returns when the API server serves."""
        self.proxy_port = self.wait(self.find_proxy_port, "kubectl proxy")
        self.wait(lambda: self.request("GET", "/readyz", check=False)[0] == 200, "the API server")
        self.spawn("kube-controller-manager", f"--kubeconfig={self.config}", "--leader-elect=false",
                   "--secure-port=0", "--pvclaimbinder-sync-period=1s",
                   f"--service-account-private-key-file={self.key}")
        self.spawn("kube-scheduler", f"--kubeconfig={self.config}", "--leader-elect=false",
                   "--secure-port=0")

    def write_egress(self):
        """Whatever is in the cluster is reached through the tunnel."""
        path = self.directory / "egress"
        path.write_text(json.dumps({
            "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
            "egressSelections": [{"name": "cluster", "connection": {
                "proxyProtocol": "HTTPConnect",
                "transport": {"uds": {"udsName": str(self.tunnel.server_address)}}}}]}))
        return path

    def spawn(self, name, *arguments, program=None, **variables):
        with open(self.log(name), "wb") as log:
            self.processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", str(program or self.programs / name), *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory,
                env=os.environ | variables)

    def stop(self, name):
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def log(self, name):
        return self.directory / f"{name}.log"

    def find_proxy_port(self):
        found = re.search(r"Starting to serve on 127\.0\.0\.1:(\d+)", self.log("kubectl").read_text())
        return found and int(found[1])

    def wait(self, condition, what):
        deadline = time.monotonic() + START_SECONDS
        while True:
            value = condition()
            if value:
                return value
            ended = [name for name, one in self.processes.items() if one.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise ControlPlaneError(f"{what} did not start; ended: {ended}\n{self.report()}")
            time.sleep(PAUSE)

    def report(self):
        """The end of what each program has said."""
        return "\n".join(f"-- {name}\n" + "".join(
            self.log(name).read_text(errors="replace").splitlines(True)[-15:]) for name in self.processes)

    def close(self):
        for name in list(self.processes):
            self.stop(name)
        self.tunnel.server_close()
        self.scratch.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- its clients

    def run(self, name, *arguments, given=None, check=True, seconds=300):
        """What a program prints that ends by itself."""
        done = subprocess.run([str(self.programs / name), *arguments], input=given, timeout=seconds,
                              capture_output=True, text=True,
                              env=os.environ | {"HOME": str(self.directory)})
        if check and done.returncode != 0:
            raise ControlPlaneError(f"{name} {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def kubectl(self, *arguments, **options):
        return self.run("kubectl", f"--kubeconfig={self.config}", *arguments, **options)

    def request(self, method, path, body=None, check=True):
        """(status, object) of a request to the API server, through the proxy; a change is a merge patch."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.proxy_port}{path}", method=method,
            data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": kind})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                text = response.read().decode()
                return response.status, json.loads(text) if text.startswith("{") else text
        except urllib.error.HTTPError as error:
            if check:
                raise ControlPlaneError(f"{method} {path}: {error}: {error.read().decode()}") from None
            return error.code, None
        except OSError as error:
            if check:
                raise ControlPlaneError(f"{method} {path}: {error}") from None
            return 0, None
