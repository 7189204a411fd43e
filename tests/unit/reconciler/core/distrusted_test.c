/* SPDX-License-Identifier: Apache-2.0 */
/* distrusted_test.c - what is not trusted of a sandbox is logged once, and known while it lasts. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/log.h"
#include "reconciler/core/observer.h"

enum { MANY = 300, TEXT_BYTES = 256 };

static struct distrusted *distrusted;
static int ends[2];
static struct {
    unsigned count;
    char last[TEXT_BYTES];
} known;

static int set_up(void **state)
{
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    log_set_descriptor(ends[1]);
    assert_int_equal(distrusted_new(&distrusted), 0);
    return 0;
}

static int tear_down(void **state)
{
    distrusted = distrusted_free(distrusted);
    log_set_descriptor(STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

/* The lines since the last time; NULL: none. */
static const char *logged(void)
{
    static char text[TEXT_BYTES * 4];
    ssize_t n = read(ends[0], text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? text : NULL;
}

static void on_doubt(void *userdata, const char *sandbox_id, const char *text)
{
    known.count++;
    (void)snprintf(known.last, sizeof(known.last), "%s: %s", sandbox_id, text);
}

static unsigned count(void)
{
    memset(&known, 0, sizeof(known));
    distrusted_each(distrusted, on_doubt, NULL);
    return known.count;
}

static void a_doubt_is_logged_once(void **state)
{
    const char *line;

    distrusted_note(distrusted, "sandbox-1", "a pid that is not its own");
    line = logged();
    assert_non_null(line);
    assert_non_null(strstr(line, "not believed: a pid that is not its own"));
    assert_non_null(strstr(line, "sandbox-1"));
    distrusted_note(distrusted, "sandbox-1", "a pid that is not its own");
    assert_null(logged());
    assert_int_equal(count(), 1);
    distrusted_note(distrusted, "sandbox-1", "another"); /* in its place */
    assert_non_null(strstr(logged(), "another"));
    assert_int_equal(count(), 1);
    assert_string_equal(known.last, "sandbox-1: another");
}

static void a_doubt_that_has_gone_is_forgotten(void **state)
{
    distrusted_note(distrusted, "sandbox-1", NULL);
    assert_int_equal(count(), 0);
    distrusted_note(distrusted, "sandbox-1", "one");
    distrusted_note(distrusted, "sandbox-2", "two");
    (void)logged();
    distrusted_note(distrusted, "sandbox-1", NULL);
    assert_null(logged());
    assert_int_equal(count(), 1);
    assert_string_equal(known.last, "sandbox-2: two");
    distrusted_note(distrusted, "sandbox-1", "one"); /* it is back, so it is news */
    assert_non_null(logged());
}

static void their_number_is_bounded(void **state)
{
    char id[32];

    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(id, sizeof(id), "sandbox-%u", i);
        distrusted_note(distrusted, id, "a claim");
        (void)logged();
    }
    assert_int_equal(count(), 256);
    distrusted_note(distrusted, "one-more", "a claim");
    /* Past the limit a doubt is not kept, and would be logged at every pass. */
    assert_null(logged());
    distrusted_note(distrusted, "sandbox-0", NULL);
    distrusted_note(distrusted, "one-more", "a claim");
    assert_non_null(logged());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_doubt_is_logged_once),
        TEST(a_doubt_that_has_gone_is_forgotten),
        TEST(their_number_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
