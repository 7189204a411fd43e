/* SPDX-License-Identifier: Apache-2.0 */
/* service_account_test.c - the API server's address, and the token, also when it is replaced. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "reconciler/kubernetes/kubernetes_events.h"
#include "tests/unit/scratch.h"

static char directory[SCRATCH_BYTES];
static struct buffer token = BUFFER_INIT(SERVICE_ACCOUNT_TOKEN_BYTES);

static int set_up(void **state)
{
    return scratch_directory_make(directory);
}

static int tear_down(void **state)
{
    buffer_done(&token);
    return scratch_directory_remove(directory);
}

static int find(const char *host, const char *port, struct service_account *account)
{
    struct error error = {0};
    int r;

    assert_int_equal(
        host ? setenv("KUBERNETES_SERVICE_HOST", host, 1) : unsetenv("KUBERNETES_SERVICE_HOST"), 0);
    assert_int_equal(
        port ? setenv("KUBERNETES_SERVICE_PORT", port, 1) : unsetenv("KUBERNETES_SERVICE_PORT"), 0);
    r = service_account_find(directory, account, &error);
    assert_int_equal(r != SERVICE_ACCOUNT_FOUND, error.text[0] != '\0');
    return r;
}

static void address_is_the_environments(void **state)
{
    struct service_account account;
    char ca_file[SCRATCH_BYTES + 16];

    assert_int_equal(find("10.96.0.1", "443", &account), SERVICE_ACCOUNT_FOUND);
    assert_string_equal(account.address, "10.96.0.1");
    assert_int_equal(account.port, 443);
    (void)snprintf(ca_file, sizeof(ca_file), "%s/ca.crt", directory);
    assert_string_equal(account.ca_file, ca_file);
    assert_int_equal(find("fd00::1", "6443", &account), SERVICE_ACCOUNT_FOUND);
    assert_string_equal(account.address, "fd00::1");
}

static void malformed_addresses_are_refused(void **state)
{
    static const char *const pairs[][2] = {
        {NULL, NULL},          {"10.0.0.1", NULL}, {NULL, "443"},           {"", "443"},
        {"kubernetes", "443"}, {"10.0.0.1", ""},   {"10.0.0.1", "0"},       {"10.0.0.1", "65536"},
        {"10.0.0.1", "44x"},   {"10.0.0.1", "-1"}, {"10.0.0.1/../", "443"}, {"[fd00::1]", "443"},
    };
    struct service_account account;

    for (size_t i = 0; i < array_length(pairs); i++)
        assert_int_equal(find(pairs[i][0], pairs[i][1], &account), SERVICE_ACCOUNT_NONE);
}

static void put_token(const char *text)
{
    int fd = -1;

    assert_int_equal(path_open_root(directory, &fd), 0);
    assert_int_equal(path_write_below(fd, "token", O_TRUNC, 0600, text, strlen(text)), 0);
    fd_close(fd);
}

/* It goes into a header. */
static void malformed_tokens_are_refused(void **state)
{
    static char longest[SERVICE_ACCOUNT_TOKEN_BYTES + 2];
    const char *const texts[] = {"", " \n", "a b", "a\r\nHost: b", "a\x01", "\xff", longest};
    struct service_account account;
    struct error error;

    memset(longest, 'a', sizeof(longest) - 1);
    assert_int_equal(find("10.0.0.1", "443", &account), 0);
    for (size_t i = 0; i < array_length(texts); i++) {
        put_token(texts[i]);
        assert_int_equal(service_account_read_token(&account, &token, &error),
                         SERVICE_ACCOUNT_NONE);
        assert_true(error.text[0]);
        assert_null(strstr(error.text, "Host"));
    }
    put_token(" first.of-them_\n");
    assert_int_equal(service_account_read_token(&account, &token, &error), 0);
    assert_string_equal(buffer_text(&token), "first.of-them_");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(address_is_the_environments),
        TEST(malformed_addresses_are_refused),
        TEST(malformed_tokens_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
