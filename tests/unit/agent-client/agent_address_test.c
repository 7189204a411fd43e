/* SPDX-License-Identifier: Apache-2.0 */
/* agent_address_test.c - the three forms, what is none of them, the companion's address, and the
 * two lines of hybrid vsock's handshake. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_address.h"
#include "agent-client/agent_client.h"

static void the_three_forms_are_read(void **state)
{
    struct agent_address address;

    assert_int_equal(agent_address_parse("vsock://4294967294:1024", &address, NULL), 0);
    assert_int_equal(address.transport, AGENT_VSOCK);
    assert_int_equal(address.cid, UINT32_C(4294967294));
    assert_int_equal(address.port, 1024);
    assert_int_equal(agent_address_parse("hvsock:///run/vc/vm/a:b/clh.sock:1024", &address, NULL),
                     0);
    assert_int_equal(address.transport, AGENT_HYBRID_VSOCK);
    assert_string_equal(address.path, "/run/vc/vm/a:b/clh.sock");
    assert_int_equal(address.port, 1024);
    assert_int_equal(agent_address_parse("unix:///run/agent.sock:7", &address, NULL), 0);
    assert_int_equal(address.transport, AGENT_UNIX);
    assert_string_equal(address.path, "/run/agent.sock:7");
}

static void everything_else_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "vsock://",
        "vsock://3",
        "vsock://3:",
        "vsock://:1024",
        "vsock://0:1024",
        "vsock://1:1024",
        "vsock://2:1024",
        "vsock://4294967295:1024",
        "vsock://4294967299:1024",
        "vsock://99999999999999999999:1",
        "vsock://3:4294967295",
        "vsock://3:0",
        "vsock://03:1024",
        "vsock://+3:1024",
        "vsock:// 3:1024",
        "vsock://-1:1024",
        "vsock://3:1024 ",
        "vsock://3:1024/x",
        "VSOCK://3:1024",
        "hvsock:///a",
        "hvsock://a:1024",
        "hvsock:///:1024",
        "hvsock:///a:x",
        "unix://a",
        "unix:///",
        "unix://",
        "remote:///a",
        "/run/agent.sock",
    };
    struct agent_address address;
    struct error error;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        error.text[0] = '\0';
        assert_int_equal(agent_address_parse(bad[i], &address, &error), -EINVAL);
        assert_non_null(strstr(error.text, bad[i]));
    }
}

static void paths_have_a_bound(void **state)
{
    char *text = calloc(1, AGENT_ADDRESS_PATH_BYTES + 16);
    struct agent_address address;

    assert_non_null(text);
    strcpy(text, "unix:///");
    memset(text + 8, 'a', AGENT_ADDRESS_PATH_BYTES - 1);
    assert_int_equal(agent_address_parse(text, &address, NULL), -EINVAL);
    text[7 + AGENT_ADDRESS_PATH_BYTES - 1] = '\0';
    assert_int_equal(agent_address_parse(text, &address, NULL), 0);
    free(text);
}

static void the_companion_has_another_port(void **state)
{
    char address[40] = "untouched";

    assert_false(agent_companion_address("unix:///a", 1030, address, sizeof(address)));
    assert_false(agent_companion_address("nonsense", 1030, address, sizeof(address)));
    assert_false(agent_companion_address("vsock://3:1024", 1030, address, 12));
    assert_false(agent_companion_address("vsock://3:1024", 1030, address, 14));
    assert_string_equal(address, "untouched");
    assert_true(agent_companion_address("vsock://3:1024", 1030, address, 15));
    assert_string_equal(address, "vsock://3:1030");
    assert_true(
        agent_companion_address("hvsock:///a:1/kata.hvsock:1024", 77777, address, sizeof(address)));
    assert_string_equal(address, "hvsock:///a:1/kata.hvsock:77777");
}

static void the_answer_ends_at_its_newline(void **state)
{
    static const char answer[] = "OK 1073741824\nOK 7\n";
    size_t used = 99;

    for (size_t length = 0; length < 14; length++)
        assert_int_equal(hybrid_vsock_answer(answer, length, &used), HYBRID_VSOCK_MORE);
    assert_int_equal(used, 99);
    for (size_t length = 14; length < sizeof(answer); length++) {
        assert_int_equal(hybrid_vsock_answer(answer, length, &used), HYBRID_VSOCK_CONNECTED);
        assert_int_equal(used, 14);
    }
}

static void other_answers_are_refused_at_once(void **state)
{
    static const char *const bad[] = {"N", "OX", "OK\n", "OK \n", "OK 1\r\n", "OK -1\n", "ok 1\n"};
    char endless[HYBRID_VSOCK_LINE_BYTES + 8];
    size_t used;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(hybrid_vsock_answer(bad[i], strlen(bad[i]), &used), HYBRID_VSOCK_REFUSED);
    memset(endless, '1', sizeof(endless));
    memcpy(endless, "OK ", 3);
    assert_int_equal(hybrid_vsock_answer(endless, HYBRID_VSOCK_LINE_BYTES - 1, &used),
                     HYBRID_VSOCK_MORE);
    assert_int_equal(hybrid_vsock_answer(endless, HYBRID_VSOCK_LINE_BYTES, &used),
                     HYBRID_VSOCK_REFUSED);
    assert_int_equal(hybrid_vsock_answer(endless, sizeof(endless), &used), HYBRID_VSOCK_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_three_forms_are_read),
        cmocka_unit_test(everything_else_is_refused),
        cmocka_unit_test(paths_have_a_bound),
        cmocka_unit_test(the_companion_has_another_port),
        cmocka_unit_test(the_answer_ends_at_its_newline),
        cmocka_unit_test(other_answers_are_refused_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
