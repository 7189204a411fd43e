/* SPDX-License-Identifier: Apache-2.0 */
/* container_request_test.c - requests that are not sent, the longest one, and the names of the
 * steps. */
#include "tests/unit/agent-client/container_agent.h"

static void assert_fault(const struct container_request *request, const char *text)
{
    reset();
    run_with(request);
    assert_kind(CONTAINER_FAILED, CONTAINER_CONNECT, text);
    assert_string_equal(agent.log, "");
}

static void bad_requests_are_not_sent(void **state)
{
    static const char *many[CONTAINER_ARGUMENTS + 2];
    struct container_request request = ordinary();

    (void)state;
    for (size_t i = 0; i < array_length(many) - 1; i++)
        many[i] = "/a";
    request.container_id = "../../etc";
    assert_fault(&request, "id");
    request.container_id = "-a";
    assert_fault(&request, "id");
    request = ordinary();
    request.directory = "relative";
    assert_fault(&request, "directory");
    request = ordinary();
    request.program = "a/b";
    assert_fault(&request, "name");
    request.program = "..";
    assert_fault(&request, "name");
    request = ordinary();
    request.volume_paths = many;
    assert_fault(&request, "too many");
    request = ordinary();
    request.arguments = many;
    assert_fault(&request, "too many arguments");
    request = ordinary();
    request.volume_paths = (const char *const[]){"vol", NULL};
    assert_fault(&request, "not absolute");
    request = ordinary();
    request.step_ns = 0;
    assert_fault(&request, "no time");
}

static void longest_request_is_sent(void **state)
{
    static char path[4096];
    static const char *paths[CONTAINER_VOLUMES + 1];
    struct container_request request = ordinary();

    (void)state;
    memset(path, 'p', sizeof(path) - 1);
    path[0] = '/';
    for (size_t i = 0; i < CONTAINER_VOLUMES; i++)
        paths[i] = path;
    request.volume_paths = paths;
    run_with(&request);
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_true(agent.created.length > CONTAINER_VOLUMES * sizeof(path));
}

static void steps_have_names(void **state)
{
    (void)state;
    for (int step = 0; step < CONTAINER_STEPS; step++)
        assert_true(strlen(container_step_name((enum container_step)step)) > 1);
    assert_string_equal(container_step_name(CONTAINER_STEPS), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AGENT(bad_requests_are_not_sent),
        AGENT(longest_request_is_sent),
        AGENT(steps_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
