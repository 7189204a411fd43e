/* SPDX-License-Identifier: Apache-2.0 */
/* bind_test.c - the binding table of docs/states.md against the code, cell by cell. */
#include "tests/unit/reconciler/decide/table.h"

#include "reconciler/decide/bind.h"

enum { STATUS, SANDBOX, DEVICE, BINDING, DISK, RECORD, FACTS };

static const struct table_fact facts[FACTS] = {
    [STATUS] = {"status", {"present", "other"}},
    [SANDBOX] = {"sandbox", {"none", "one", "several"}},
    [DEVICE] = {"device", {"missing", "suitable", "unsuitable"}},
    [BINDING] = {"binding", {"none", "here", "another"}},
    [DISK] = {"disk", {"same", "replaced", "another"}},
    [RECORD] = {"record", {"agrees", "contradicts"}},
};

static struct table table = {
    .marker = "<!-- bind -->",
    .facts = facts,
    .fact_count = FACTS,
    .outcomes = 2,
};

static struct bind_facts facts_of(const int *combination)
{
    return (struct bind_facts){
        .present = combination[STATUS] == 0,
        .sandbox = combination[SANDBOX],
        .device = combination[DEVICE],
        .binding = combination[BINDING],
        .disk = combination[DISK],
        .contradicted = combination[RECORD] == 1,
    };
}

static const char *const actions[] = {"nothing", "open", "close", "keep"};

/* What must hold of every binding, whatever the facts. */
static void expect_certain(const struct bind_facts *given, enum bind_action action)
{
    if (action == BIND_OPEN || action == BIND_KEEP) {
        assert_true(given->present);
        assert_int_equal(given->sandbox, BIND_ONE_SANDBOX);
    }
    if (action == BIND_OPEN) {
        assert_int_equal(given->device, BIND_DEVICE_SUITABLE);
        assert_false(given->contradicted);
    }
    if (action == BIND_KEEP)
        assert_int_equal(given->binding, BIND_HERE);
    if (given->binding == BIND_NONE)
        assert_int_not_equal(action, BIND_CLOSE);
}

static void every_combination_is_bound_by_the_table(void **state)
{
    int combination[FACTS] = {0};

    do {
        struct bind_facts given = facts_of(combination);
        struct binding binding = bind_decide(&given);
        const char *decided[] = {actions[binding.action],
                                 binding.mismatch ? "identity_mismatch" : "none"};

        table_expect(&table, combination, table_match(&table, combination), decided);
        expect_certain(&given, binding.action);
    } while (table_advance(&table, combination));
    table_assert_used(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_bound_by_the_table),
    };

    return cmocka_run_group_tests_name("bind", tests, NULL, NULL);
}
