#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# generate.sh [DIRECTORY]: makes the Go code of this directory from DIRECTORY/crust_runtime.proto, which
# crustd installs in /usr/share/crustd/proto. Needs protoc; its plugins are tools of go.mod.
set -eu

cd "$(dirname "$0")"
protos=${1:-../../../../api/proto}
exec protoc -I "$protos" \
    --plugin=protoc-gen-go="$(go tool -n protoc-gen-go)" --go_out=. --go_opt=paths=source_relative \
    --plugin=protoc-gen-go-grpc="$(go tool -n protoc-gen-go-grpc)" --go-grpc_out=. \
    --go-grpc_opt=paths=source_relative \
    crust_runtime.proto
