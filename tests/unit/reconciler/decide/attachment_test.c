/* SPDX-License-Identifier: Apache-2.0 */
/* attachment_test.c - the attachment table of docs/states.md against the code, cell by cell. */
#include "tests/unit/reconciler/decide/table.h"

#include "reconciler/decide/bind.h"

enum { LIST, RECORD, CONTAINER, LASTING, FACTS };

static const struct table_fact facts[FACTS] = {
    [LIST] = {"list", {"unread", "refused", "has", "lacks"}},
    [RECORD] = {"record", {"silent", "device", "directory"}},
    [CONTAINER] = {"container", {"yes", "no"}},
    [LASTING] = {"lasting", {"yes", "no"}},
};

static struct table table = {
    .marker = "<!-- attachment -->",
    .facts = facts,
    .fact_count = FACTS,
    .outcomes = 1,
};

static struct attachment_facts facts_of(const int *combination)
{
    return (struct attachment_facts){
        .list = combination[LIST],
        .record = combination[RECORD],
        .has_container = combination[CONTAINER] == 0,
        .is_lasting = combination[LASTING] == 0,
    };
}

static const char *const names[] = {"open", "detached", "bypassed", "unplugged"};

static void every_combination_is_decided_by_the_table(void **state)
{
    int combination[FACTS] = {0};

    do {
        struct attachment_facts given = facts_of(combination);

        table_expect(&table, combination, table_match(&table, combination),
                     &names[attachment_decide(&given)]);
        /* A drive that the list has, or that nobody looked for, is no reason for an alarm. */
        if (given.list == LIST_HAS || given.list == LIST_UNREAD)
            assert_int_equal(attachment_decide(&given), ATTACHMENT_OPEN);
        if (given.list == LIST_REFUSED && given.record != RECORD_DIRECTORY)
            assert_int_equal(attachment_decide(&given), ATTACHMENT_OPEN);
    } while (table_advance(&table, combination));
    table_assert_used(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_decided_by_the_table),
    };

    return cmocka_run_group_tests_name("attachment", tests, NULL, NULL);
}
