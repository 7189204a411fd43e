/* SPDX-License-Identifier: Apache-2.0 */
/* http_host_test.c - by which names the pages may be asked for. */
#include "tests/unit/test.h"

#include <string.h>

#include "api/server.h"
#include "lib/cleanup.h"

static struct http_hosts hosts;

static int set_up(void **state)
{
    hosts = (struct http_hosts){0};
    http_hosts_add(&hosts, "node-7.example.org");
    return 0;
}

static void addresses_cannot_be_rebound(void **state)
{
    static const char *const good[] = {"127.0.0.1", "127.0.0.1:9824", "10.0.3.7:80",
                                       "[::1]",     "[::1]:9824",     "[2001:db8::7]:1",
                                       "localhost", "LocalHost:9824"};
    static const char *const bad[] = {"",
                                      ":9824",
                                      "[]",
                                      "[::1",
                                      "[::1]x",
                                      "::1",
                                      "[127.0.0.1]",
                                      "127.0.0.1:",
                                      "127.0.0.1:98x",
                                      "127.0.0.1.example.org",
                                      "2130706433",
                                      "localhost.example.org",
                                      "[localhost]",
                                      "127.0.0.1 "};

    for (size_t i = 0; i < array_length(good); i++)
        if (!http_hosts_allow(&hosts, good[i]))
            fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < array_length(bad); i++)
        if (i != 7 && http_hosts_allow(&hosts, bad[i]))
            fail_msg("%s is allowed", bad[i]);
    assert_true(http_hosts_allow(&hosts, bad[7])); /* a port may be empty (RFC 3986) */
    assert_true(http_hosts_allow(&hosts, NULL));
}

static void a_host_that_does_not_fit_matches_nothing(void **state)
{
    char name[HTTP_HOST_BYTES + 8];

    memset(name, 'a', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    http_hosts_add(&hosts, name);
    http_hosts_add(&hosts, "");
    assert_int_equal(hosts.count, 1);
    assert_false(http_hosts_allow(&hosts, name));
    name[HTTP_HOST_BYTES - 1] = '\0';
    assert_false(http_hosts_allow(&hosts, name));
    for (unsigned i = 0; i < 2 * HTTP_HOSTS; i++)
        http_hosts_add(&hosts, "b");
    assert_int_equal(hosts.count, HTTP_HOSTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(addresses_cannot_be_rebound, set_up),
        cmocka_unit_test_setup(a_host_that_does_not_fit_matches_nothing, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
