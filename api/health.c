/* SPDX-License-Identifier: Apache-2.0 */
/* health.c - grpc.health.v1.Health/Check: /readyz as a gRPC service. */
#include "api/grpc_call.h"
#include "api/proto/health.pb-c.h"
#include "reconciler/command/command.h"

enum { SERVICE_BYTES = 128 };

static void check(struct grpc_call *call, const ProtobufCMessage *message)
{
    const Grpc__Health__V1__HealthCheckRequest *request =
        (const Grpc__Health__V1__HealthCheckRequest *)(const void *)message;
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    struct reconciler_health health = {0};
    char service[SERVICE_BYTES];

    if (grpc_copy_text(&request->service, service, sizeof(service)) < 0 ||
        (*service && !grpc_call_has_service(call, service))) {
        grpc_call_fail(call, STATUS_NOT_FOUND, "there is no such service here");
        return;
    }
    reconciler_get_health(grpc_call_reconciler(call), &health);
    response.status = health.synced && !health.degraded
                          ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                          : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    grpc_call_reply(call, &response.base);
}

const struct grpc_method health_methods[] = {
    {"/grpc.health.v1.Health/Check", &grpc__health__v1__health_check_request__descriptor, check},
    {NULL, NULL, NULL},
};
