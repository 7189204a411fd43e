/* SPDX-License-Identifier: Apache-2.0 */
/* examine_test.c - what an examination of the node is given, and what CRUST may say of it then. */
#include "tests/unit/reconciler/surroundings.h"

#include <cjson/cJSON.h>

#include "doctor/doctor.h"
#include "reconciler/core/reconciler_internal.h"

static struct {
    struct surroundings node;
    struct reconciler core;
    struct doctor_abilities abilities;
    int failure;
    unsigned examinations;
    struct reconciler_names names;
    struct error error;
} test;

/* ---- the doctor ---- */

/* It knows the sandbox, which has one volume. */
static int examine(const struct doctor_request *request)
{
    const cJSON *sandbox = cJSON_GetArrayItem(request->sandboxes, 0);

    test.examinations++;
    assert_int_equal(request->root, root);
    assert_ptr_equal(request->config, &test.node.config);
    assert_int_equal(cJSON_GetArraySize(request->sandboxes), 1);
    assert_string_equal(cJSON_GetObjectItem(sandbox, "sandbox_id")->valuestring, "sandbox-1");
    assert_int_equal(cJSON_GetObjectItem(sandbox, "volumes")->valueint, 1);
    return test.failure;
}

int doctor_find_abilities(const struct doctor_request *request,
                          struct doctor_abilities *ret_abilities)
{
    *ret_abilities = test.abilities;
    return examine(request);
}

int doctor_examine(const struct doctor_request *request, struct buffer *ret_json)
{
    assert_int_equal(buffer_append_text(ret_json, "[findings]"), 0);
    return examine(request);
}

/* ---- the node ---- */

static int set_up(void **state)
{
    memset(&test, 0, sizeof(test));
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    test.core.context = test.node.context;
    test.abilities = (struct doctor_abilities){
        .has_guests = true, .tells_hypervisor = true, .resizes_guests = true};
    return 0;
}

static int tear_down(void **state)
{
    surroundings_end(&test.node);
    return 0;
}

static const char *said(void)
{
    static char text[RECONCILER_NAMES * sizeof(test.names.name[0])];
    size_t length = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < test.names.count; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s", i ? " " : "",
                                   test.names.name[i]);
    return text;
}

static const char *capabilities(void)
{
    assert_int_equal(reconciler_find_capabilities(&test.core, &test.names, &test.error), 0);
    return said();
}

/* ---- examining ---- */

static void an_examination_knows_the_sandboxes(void **state)
{
    struct buffer json = BUFFER_INIT(0);

    assert_int_equal(reconciler_examine(&test.core, &json, &test.error), 0);
    assert_string_equal(buffer_text(&json), "[findings]");
    assert_int_equal(test.examinations, 1);
    test.failure = -EMSGSIZE;
    assert_int_equal(reconciler_examine(&test.core, &json, &test.error), -EMSGSIZE);
    assert_non_null(strstr(test.error.text, "the findings can't be written"));
    buffer_done(&json);
}

static void without_the_record_nothing_is_examined(void **state)
{
    struct doctor_abilities abilities;
    struct buffer json = BUFFER_INIT(0);

    execute_sql(test.node.context.store,
                "PRAGMA foreign_keys = 0; ALTER TABLE sandboxes RENAME COLUMN sandbox_id TO lost");
    assert_true(reconciler_examine(&test.core, &json, &test.error) < 0);
    assert_true(examine_abilities(&test.node.context, &abilities, &test.error) < 0);
    assert_int_equal(test.examinations, 0);
    buffer_done(&json);
}

/* ---- capabilities ---- */

static void capabilities_are_what_was_found(void **state)
{
    static const struct {
        struct doctor_abilities found;
        enum config_resize_mode mode;
        const char *said;
    } table[] = {
        {{.has_guests = true, .tells_hypervisor = true, .resizes_guests = true},
         RESIZE_GROW,
         "VOLUME_STATS VOLUME_RESIZE"},
        {{.has_guests = true, .tells_hypervisor = true, .resizes_guests = true},
         RESIZE_OBSERVE,
         "VOLUME_STATS"},
        {{.has_guests = true, .resizes_guests = true}, RESIZE_GROW, "VOLUME_STATS"},
        {{.has_guests = true, .tells_hypervisor = true}, RESIZE_GROW, "VOLUME_STATS"},
        {{.tells_hypervisor = true, .resizes_guests = true}, RESIZE_GROW, "VOLUME_RESIZE"},
        {{0}, RESIZE_GROW, ""},
        {{.applies_group = true},
         RESIZE_GROW,
         "FS_GROUP_CHANGE_POLICY_ALWAYS FS_GROUP_CHANGE_POLICY_ROOT_MISMATCH"},
        {{.ignores_labels = true}, RESIZE_GROW, "SELINUX_RELABEL SELINUX_RELABEL_ON_MOUNT"},
        {{.enforces_labels = true}, RESIZE_GROW, "SELINUX_RELABEL_ON_MOUNT"},
    };

    for (size_t i = 0; i < array_length(table); i++) {
        test.abilities = table[i].found;
        test.node.config.resize.mode = table[i].mode;
        assert_string_equal(capabilities(), table[i].said);
    }
}

static void without_a_route_to_guests_there_is_no_capability(void **state)
{
    test.node.config.agent.routes[0] = ROUTE_NONE;
    assert_string_equal(capabilities(), "");
}

static void an_examination_that_fails_has_no_capabilities(void **state)
{
    test.failure = -ENOMEM;
    assert_int_equal(reconciler_find_capabilities(&test.core, &test.names, &test.error), -ENOMEM);
    assert_non_null(strstr(test.error.text, "the node can't be examined"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_examination_knows_the_sandboxes),
        TEST(without_the_record_nothing_is_examined),
        TEST(capabilities_are_what_was_found),
        TEST(without_a_route_to_guests_there_is_no_capability),
        TEST(an_examination_that_fails_has_no_capabilities),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
