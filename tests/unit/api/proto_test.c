/* SPDX-License-Identifier: Apache-2.0 */
/* proto_test.c - what must hold of every message that comes in by gRPC. */
#include "tests/unit/test.h"

#include "api/proto/crust_drive_v1.pb-c.h"
#include "api/proto/crust_management.pb-c.h"
#include "api/proto/crust_runtime.pb-c.h"
#include "api/proto/health.pb-c.h"
#include "lib/cleanup.h"

enum { LEVELS = 8 };

/* protobuf-c follows nesting without a limit, so nothing may nest in itself: a walk that comes to
 * more levels than messages nest here has gone round. Nor does it say how long a string is. */
static void walk(const ProtobufCMessageDescriptor *message, unsigned level)
{
    assert_true(level < LEVELS);
    for (unsigned i = 0; i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];

        assert_int_not_equal(field->type, PROTOBUF_C_TYPE_STRING);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
            walk(field->descriptor, level + 1);
    }
}

static void no_message_contains_itself(void **state)
{
    static const ProtobufCServiceDescriptor *const services[] = {
        &crust__v1__runtime__descriptor,
        &crust__management__v1__runtime_assisted_storage_management__descriptor,
        &crust__drive__v1__drives__descriptor,
        &grpc__health__v1__health__descriptor,
    };

    for (size_t i = 0; i < array_length(services); i++)
        for (unsigned j = 0; j < services[i]->n_methods; j++) {
            walk(services[i]->methods[j].input, 0);
            walk(services[i]->methods[j].output, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_message_contains_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
