# SPDX-License-Identifier: Apache-2.0
"""csi_calls.py SOCKET METHOD ARGUMENTS: one call of csi_client.py, for a test that cannot reach the socket.

ARGUMENTS is a JSON object. Prints the answer as JSON, or {"code": …, "details": …}.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE / "e2e"), str(HERE / "stubs")]

import csi_pb2  # noqa: E402
import csi_pb2_grpc  # noqa: E402
import grpc  # noqa: E402
from csi_client import Client  # noqa: E402
from google.protobuf import json_format  # noqa: E402


def main():
    socket, method, arguments = sys.argv[1:]
    arguments = json.loads(arguments)
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        client = Client(csi_pb2, csi_pb2_grpc, channel, seconds=300)
        if "volume" in arguments:
            arguments["volume"] = csi_pb2.Volume(**arguments["volume"])
        if "fs_type" in arguments:
            arguments["capability"] = client.capability(arguments.pop("fs_type"))
        try:
            answer = getattr(client, method)(**arguments)
        except grpc.RpcError as error:
            answer = {"code": error.code().name, "details": error.details()}
    if hasattr(answer, "DESCRIPTOR"):
        answer = json_format.MessageToDict(answer, preserving_proto_field_name=True)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
