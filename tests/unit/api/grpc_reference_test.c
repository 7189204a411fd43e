/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_reference_test.c - docs/reference/grpc.md against the server's methods and their messages.
 */
#include "tests/unit/reference.h"

#include "api/grpc_call.h"
#include "api/proto/crust_drive_v1.pb-c.h"
#include "api/proto/crust_management.pb-c.h"
#include "api/proto/crust_runtime.pb-c.h"
#include "api/proto/health.pb-c.h"

static void fields_text(const ProtobufCMessageDescriptor *message, char *ret_text, size_t size)
{
    *ret_text = '\0';
    for (unsigned i = 0; i < message->n_fields; i++)
        reference_append(ret_text, size, message->fields[i].name);
}

/* A service's methods stand in the order of its proto file, each with its messages. */
static void expect_service(struct reference *page, const struct call_method *methods,
                           const ProtobufCServiceDescriptor *service)
{
    unsigned i = 0;

    for (; methods[i].path; i++) {
        const ProtobufCMethodDescriptor *method = &service->methods[i];
        char name[128], fields[512];

        assert_true(i < service->n_methods);
        (void)snprintf(name, sizeof(name), "%s/%s", service->name, method->name);
        assert_string_equal(methods[i].path + 1, name);
        assert_ptr_equal(methods[i].request, method->input);
        reference_expect(page, name);
        fields_text(method->input, fields, sizeof(fields));
        reference_expect_cell(page, 1, fields);
        fields_text(method->output, fields, sizeof(fields));
        reference_expect_cell(page, 2, fields);
        reference_expect_words(page, 3);
    }
    assert_int_equal(i, service->n_methods);
}

static void services_are_as_the_page_has_them(void **state)
{
    struct reference page;

    reference_open(&page, "docs/reference/grpc.md", "methods");
    expect_service(&page, crust_runtime_methods, &crust__v1__runtime__descriptor);
    expect_service(&page, crust_management_methods,
                   &crust__management__v1__runtime_assisted_storage_management__descriptor);
    expect_service(&page, crust_drives_methods, &crust__drive__v1__drives__descriptor);
    expect_service(&page, health_methods, &grpc__health__v1__health__descriptor);
    reference_expect_end(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(services_are_as_the_page_has_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
