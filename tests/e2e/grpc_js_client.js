// SPDX-License-Identifier: Apache-2.0
// grpc_js_client.js PROTO SOCKET - calls crustd by @grpc/grpc-js: each line of standard input is
// {"service", "method", "request", "seconds"}, each line of the output its {"reply"} or
// {"code", "details"}.
"use strict";

const readline = require("readline");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [proto, socket] = process.argv.slice(2);
const definition = loader.loadSync(
    ["health.proto", "crust_runtime.proto", "crust_management.proto"],
    {includeDirs: [proto], keepCase: true, longs: Number, enums: String, defaults: true});
const root = grpc.loadPackageDefinition(definition);
const services = {
    "grpc.health.v1.Health": root.grpc.health.v1.Health,
    "crust.v1.Runtime": root.crust.v1.Runtime,
    "crust.management.v1.RuntimeAssistedStorageManagement":
        root.crust.management.v1.RuntimeAssistedStorageManagement,
};

function call({service, method, request, seconds}) {
    const client = new services[service](`unix:${socket}`, grpc.credentials.createInsecure());
    const deadline = new Date(Date.now() + 1000 * seconds);
    return new Promise((done) => {
        client[method](request, {deadline}, (error, reply) => {
            client.close();
            done(error ? {code: grpc.status[error.code], details: error.details} : {reply});
        });
    });
}

async function main() {
    for await (const line of readline.createInterface({input: process.stdin}))
        console.log(JSON.stringify(await call(JSON.parse(line))));
}

main();
