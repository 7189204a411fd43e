# SPDX-License-Identifier: Apache-2.0
"""register.py NAME ENDPOINT: tells the kubelet of a CSI driver, as node-driver-registrar does.

Serves pluginregistration.Registration on plugins_registry/NAME-reg.sock; its messages are few enough to be
written by hand. Ends with 1 if the kubelet does not take the driver.
"""

import concurrent.futures
import os
import pathlib
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent / "fakes"))

import grpc  # noqa: E402
from agent import field, fields, first  # noqa: E402

REGISTRY = "/var/lib/kubelet/plugins_registry"


class Registration(grpc.GenericRpcHandler):
    def __init__(self, name, endpoint):
        self.information = (field(1, "CSIPlugin") + field(2, name) + field(3, endpoint)
                            + field(4, "1.0.0"))

    def service(self, details):
        method = details.method.rpartition("/")[2]
        answer = {"GetInfo": self.tell, "NotifyRegistrationStatus": self.hear}.get(method)
        return answer and grpc.unary_unary_rpc_method_handler(answer)

    def tell(self, _request, _context):
        return self.information

    @staticmethod
    def hear(request, _context):
        status = fields(request)
        if not first(status, 1, 0):
            print(first(status, 2, b"").decode(), file=sys.stderr, flush=True)
            os._exit(1)
        print("registered", flush=True)
        return b""


def main():
    name, endpoint = sys.argv[1:]
    path = f"{REGISTRY}/{name}-reg.sock"
    pathlib.Path(path).unlink(missing_ok=True)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Registration(name, endpoint),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
