/* SPDX-License-Identifier: Apache-2.0 */
/* stale_reason_test.c - every reason about stale metadata has a name, a text and a
 * place in the maintainers' walk. */
#include "model/stale_reason.h"

#include <string.h>

#include "tests/unit/reference.h"

static void every_reason_is_explained(void **state)
{
    for (unsigned i = STALE_REASON_NONE + 1; i < STALE_REASONS; i++)
        if (!stale_reason_meaning(i))
            fail_msg("%s is not explained", stale_reason_name(i));
    assert_null(stale_reason_meaning(STALE_REASON_NONE));
    assert_null(stale_reason_remedy(STALE_REASON_NONE));
}

static void every_name_leads_back(void **state)
{
    for (unsigned i = 0; i < STALE_REASONS; i++)
        assert_int_equal(stale_reason_from_name(stale_reason_name(i)), i);
    assert_int_equal(stale_reason_from_name("asleep"), STALE_REASON_NONE);
    assert_int_equal(stale_reason_from_name(""), STALE_REASON_NONE);
}

/* "a, b": each is a reason, and is noted. */
static void note_reasons(char *words, bool ret_found[static STALE_REASONS])
{
    char *rest = NULL;

    for (char *word = strtok_r(words, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        enum stale_reason reason = stale_reason_from_name(word);

        if (reason == STALE_REASON_NONE)
            fail_msg("docs/maintaining.md: %s is no reason", word);
        ret_found[reason] = true;
    }
}

static void every_reason_has_a_place_in_the_walk(void **state)
{
    struct reference page;
    bool found[STALE_REASONS] = {false};

    reference_open(&page, "docs/maintaining.md", "cleanup-walk");
    while (reference_next(&page)) {
        char words[256];

        (void)snprintf(words, sizeof(words), "%s", page.cells > 2 ? page.cell[2] : "");
        if (strcmp(words, "all that keep") != 0)
            note_reasons(words, found);
    }
    reference_close(&page);
    for (unsigned i = STALE_REASON_NONE + 1; i < STALE_REASONS; i++)
        if (!found[i])
            fail_msg("docs/maintaining.md does not say where %s comes from", stale_reason_name(i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reason_has_a_place_in_the_walk),
        cmocka_unit_test(every_reason_is_explained),
        cmocka_unit_test(every_name_leads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
