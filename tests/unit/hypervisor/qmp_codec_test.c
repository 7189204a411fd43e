/* SPDX-License-Identifier: Apache-2.0 */
/* qmp_codec_test.c - messages out of any split of the bytes, and nothing out of nonsense. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "hypervisor/qmp.h"
#include "lib/cleanup.h"

#define GREETING                                                                                   \
    "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}}, "            \
    "\"capabilities\": [\"oob\"]}}\r\n"

static const struct {
    const char *text;
    enum qmp_kind kind;
    const char *id;
    const char *error_class, *error_text;
} messages[] = {
    {GREETING, QMP_GREETING, NULL, NULL, NULL},
    {"{\n    \"QMP\": {\n        \"capabilities\": [\n        ]\n    }\n}\r\n", QMP_GREETING, NULL,
     NULL, NULL},
    {"{\"return\": {}}\r\n", QMP_RETURN, NULL, NULL, NULL},
    {"{\"return\": [], \"id\": \"a\"}\r\n", QMP_RETURN, "a", NULL, NULL},
    {"{\"id\": 7, \"return\": null}\r\n", QMP_RETURN, NULL, NULL, NULL},
    {"{\"id\": \"r1\", \"error\": {\"class\": \"GenericError\", \"desc\": \"Failed to get "
     "\\\"resize\\\" lock\"}}\r\n",
     QMP_ERROR, "r1", "GenericError", "Failed to get \"resize\" lock"},
    {"{\"error\": {}}", QMP_ERROR, NULL, "", ""},
    {"{\"error\": \"odd\"}", QMP_ERROR, NULL, "", ""},
    {"{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": \"STOP\"}\r\n", QMP_EVENT,
     NULL, NULL, NULL},
    {"{\"event\": \"X\", \"data\": {\"return\": \"}]\\\"{\"}}", QMP_EVENT, NULL, NULL, NULL},
    {"{}", QMP_OTHER, NULL, NULL, NULL},
};

static void check_message(const struct qmp_message *message, size_t i)
{
    assert_int_equal(message->kind, messages[i].kind);
    if (messages[i].id)
        assert_string_equal(message->id, messages[i].id);
    else
        assert_null(message->id);
    if (messages[i].kind == QMP_ERROR) {
        assert_string_equal(message->error_class, messages[i].error_class);
        assert_string_equal(message->error_text, messages[i].error_text);
    }
    if (messages[i].kind == QMP_RETURN)
        assert_non_null(message->value);
}

static void each_kind_of_message_is_recognised(void **state)
{
    for (size_t i = 0; i < array_length(messages); i++) {
        struct buffer input = BUFFER_INIT(4096);
        struct qmp_decoder decoder = {0};
        struct qmp_message message;
        struct error error;

        assert_int_equal(buffer_append_text(&input, messages[i].text), 0);
        assert_int_equal(qmp_decode(&decoder, &input, &message, &error), QMP_DECODED);
        check_message(&message, i);
        qmp_message_done(&message);
        assert_int_equal(qmp_decode(&decoder, &input, &message, &error), QMP_INCOMPLETE);
        assert_int_equal(input.length, 0);
        buffer_done(&input);
    }
}

/* All messages in a row, each byte arriving alone. */
static void takes_any_split(void **state)
{
    struct buffer input = BUFFER_INIT(4096);
    struct qmp_decoder decoder = {0};
    struct qmp_message message;
    struct error error;
    size_t seen = 0;

    for (size_t i = 0; i < array_length(messages); i++) {
        for (const char *byte = messages[i].text; *byte; byte++) {
            assert_int_equal(buffer_append(&input, byte, 1), 0);
            if (qmp_decode(&decoder, &input, &message, &error) == QMP_INCOMPLETE)
                continue;
            check_message(&message, seen++);
            qmp_message_done(&message);
        }
    }
    assert_int_equal(seen, array_length(messages));
    buffer_done(&input);
}

/* Two bytes each, 80 of memory. */
static void refuses_more_values_than_a_vmm_has(void **state)
{
    struct buffer input = BUFFER_INIT(QMP_MESSAGE_BYTES);
    struct qmp_decoder decoder = {0};
    struct qmp_message message;
    struct error error;

    assert_int_equal(buffer_append_text(&input, "{\"return\": [0"), 0);
    for (unsigned i = 0; i < JSON_LIMITS_QMP.values; i++)
        assert_int_equal(buffer_append_text(&input, ",0"), 0);
    assert_int_equal(buffer_append_text(&input, "]}"), 0);
    assert_int_equal(qmp_decode(&decoder, &input, &message, &error), -EBADMSG);
    assert_non_null(strstr(error.text, "more values than are read"));
    buffer_done(&input);
}

static void refuses_nonsense(void **state)
{
    static const struct {
        const char *text;
        int result;
    } cases[] = {
        {"QEMU 7.2.22 monitor", -EBADMSG},
        {"[1]\r\n", -EBADMSG},
        {"{]", -EBADMSG},
        {"{\"return\": {}, \"return\": 1}", -EBADMSG},
        {"{\"return\": {}, \"RETURN\": 1}", -EBADMSG},
        {"{\"return\": \"\\u0000\"}", -EBADMSG},
        {"{\"return\": \"\xff\"}", -EBADMSG},
        {"{\"return\": [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}", -EMSGSIZE},
        {"{\"return\": {}", QMP_INCOMPLETE},
        {"{\"return\": \"}", QMP_INCOMPLETE},
        {" \r\n", QMP_INCOMPLETE},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct buffer input = BUFFER_INIT(4096);
        struct qmp_decoder decoder = {0};
        struct qmp_message message;
        struct error error;
        int r;

        assert_int_equal(buffer_append_text(&input, cases[i].text), 0);
        r = qmp_decode(&decoder, &input, &message, &error);
        if (cases[i].result < 0)
            assert_true(r == -EBADMSG || r == -EMSGSIZE);
        else
            assert_int_equal(r, cases[i].result);
        buffer_done(&input);
    }
}

static void refuses_an_endless_message(void **state)
{
    struct buffer input = BUFFER_INIT(QMP_MESSAGE_BYTES + 4096);
    struct qmp_decoder decoder = {0};
    struct qmp_message message;
    char spaces[4096];
    struct error error;
    int r = QMP_INCOMPLETE;

    memset(spaces, ' ', sizeof(spaces));
    assert_int_equal(buffer_append_text(&input, "{"), 0);
    while (r == QMP_INCOMPLETE) {
        assert_int_equal(buffer_append(&input, spaces, sizeof(spaces)), 0);
        r = qmp_decode(&decoder, &input, &message, &error);
    }
    assert_int_equal(r, -EMSGSIZE);
    buffer_done(&input);
}

static void reads_the_version_of_a_greeting(void **state)
{
    static const struct {
        const char *greeting;
        const char *version;
    } cases[] = {
        {"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 1, \"minor\": 0, \"major\": 11}}}}",
         "11.0.1"},
        {"{\"QMP\": {\"version\": {\"qemu\": {\"minor\": 0, \"major\": 11}}}}", ""},
        {"{\"QMP\": {\"version\": \"11.0.1\"}}", ""},
        {"{\"QMP\": true}", ""},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct buffer input = BUFFER_INIT(4096);
        struct qmp_decoder decoder = {0};
        struct qmp_message message;
        char version[32] = "old";

        assert_int_equal(buffer_append_text(&input, cases[i].greeting), 0);
        assert_int_equal(qmp_decode(&decoder, &input, &message, NULL), QMP_DECODED);
        qmp_read_version(&message, version, sizeof(version));
        assert_string_equal(version, cases[i].version);
        qmp_message_done(&message);
        buffer_done(&input);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_message_is_recognised),
        cmocka_unit_test(takes_any_split),
        cmocka_unit_test(refuses_nonsense),
        cmocka_unit_test(refuses_an_endless_message),
        cmocka_unit_test(refuses_more_values_than_a_vmm_has),
        cmocka_unit_test(reads_the_version_of_a_greeting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
