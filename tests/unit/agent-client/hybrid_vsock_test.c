/* SPDX-License-Identifier: Apache-2.0 */
/* hybrid_vsock_test.c - the two lines of the handshake, at every length. */
#include "tests/unit/test.h"

#include <string.h>

#include "agent-client/agent_address.h"

static void the_request_is_one_line(void **state)
{
    char line[HYBRID_VSOCK_LINE_BYTES];

    (void)state;
    assert_int_equal(hybrid_vsock_request(1024, line), 13);
    assert_string_equal(line, "CONNECT 1024\n");
    assert_int_equal(hybrid_vsock_request(UINT32_MAX, line), 19);
}

static void the_answer_ends_at_its_newline(void **state)
{
    static const char answer[] = "OK 1073741824\nOK 7\n";
    size_t used = 99;

    (void)state;
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

    (void)state;
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
        cmocka_unit_test(the_request_is_one_line),
        cmocka_unit_test(the_answer_ends_at_its_newline),
        cmocka_unit_test(other_answers_are_refused_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
