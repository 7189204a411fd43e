/* stale_test.c - every reason of the table of staleness has a text. */
#include "crustctl/stale.h"

#include <string.h>

#include "reconciler/decide/stale.h"
#include "tests/unit/test.h"

static void every_reason_is_explained(void **state)
{
    (void)state;
    for (unsigned i = STALE_REASON_NONE + 1; i < STALE_REASONS; i++)
        if (!stale_find(stale_reason_name(i)))
            fail_msg("%s is not explained", stale_reason_name(i));
    assert_null(stale_find("asleep"));
}

static void a_text_is_wrapped(void **state)
{
    struct buffer out = BUFFER_INIT(16384);
    char *line;

    (void)state;
    for (const struct stale_text *text = stale_texts; text->reason; text++)
        assert_int_equal(stale_print(text, 80, &out), 0);
    for (line = strtok(out.data, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= 80);
    buffer_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_is_explained),
        cmocka_unit_test(a_text_is_wrapped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
