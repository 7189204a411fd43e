/* SPDX-License-Identifier: Apache-2.0 */
/* curl_library_test.c - a machine without libcurl, until it has one. */
#include "tests/unit/http_server.h"

#include <dlfcn.h>

#include "lib/clock.h"
#include "lib/http_exchange.h"

static bool installed;

/* Stands before libc's. What is not there is looked for by a name that nothing has. */
void *dlopen(const char *name, int flags)
{
    void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

    return real(installed ? name : "libcurl-that-nobody-has.so.4", flags);
}

static void exchange_without_libcurl_fails(void **state)
{
    struct http_server *server = *state;
    struct http_exchange_request request = {.directory = server->root,
                                            .socket_path = server->path,
                                            .method = "GET",
                                            .target = "/",
                                            .body_limit = 1};
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct error error;
    unsigned status;

    http_server_listen(server, NULL, 0);
    assert_int_equal(
        http_exchange_perform(&request, clock_boottime() + NSEC_PER_SEC, &status, &body, &error),
        HTTP_EXCHANGE_FAILED);
    assert_non_null(strstr(error.text, "libcurl-that-nobody-has.so.4"));
}

static void the_library_may_be_installed_later(void **state)
{
    struct error error;

    installed = true;
    assert_int_equal(curl_library_load(&error), 0);
    installed = false;
    assert_int_equal(curl_library_load(&error), 0);
    assert_non_null(libcurl.easy_cleanup);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exchange_without_libcurl_fails, http_server_set_up,
                                        http_server_tear_down),
        cmocka_unit_test(the_library_may_be_installed_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
