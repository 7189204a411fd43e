/* SPDX-License-Identifier: Apache-2.0 */
/* answers_test.c - docs/csi-drivers.md's table of statuses against the code's, row by row. */
#include "tests/unit/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "reconciler/command/answers.h"

enum { LINE_BYTES = 1024 };

static unsigned answer_rows[ANSWERS], reason_rows[REASONS];

static enum status_code find(const char *name)
{
    const enum volume_reason reason = reason_from_name(name);

    for (unsigned i = 0; i < ANSWERS; i++)
        if (strcmp(answer_name(i), name) == 0) {
            answer_rows[i]++;
            return answer_code(i);
        }
    if (reason == REASON_NONE)
        fail_msg("the code knows no case %s", name);
    reason_rows[reason]++;
    return reason_code(reason, STATES);
}

/* "| `case`…| STATUS |…" */
static bool compare_row(const char *line)
{
    char name[64], status[64];
    const char *cell = strchr(line + 1, '|'), *known;

    if (sscanf(line, "| `%63[a-z_]`", name) != 1)
        return false;
    assert_non_null(cell);
    assert_int_equal(sscanf(cell, "| %63[A-Z_] |", status), 1);
    known = status_name(find(name));
    if (strcmp(status, known) != 0)
        fail_msg("%s is %s in the docs and %s in the code", name, status, known);
    return true;
}

/* Some reasons are no volume's state, so that no call is ever answered by them. */
static bool is_answered(enum volume_reason reason)
{
    switch ((int)reason) {
    case REASON_NONE:
    case REASON_BUNDLE_UNREADABLE:
    case REASON_UNVERIFIED:
    case REASON_SHRUNK:
    case REASON_DETACHED:
    case REASON_DRIVES_NOT_READ:
    case REASON_GUEST_NOT_ASKED:
        return false;
    default:
        return true;
    }
}

static void docs_table_is_the_codes(void **state)
{
    FILE *file = fopen("docs/csi-drivers.md", "re");
    char line[LINE_BYTES];
    bool inside = false, ended = false;
    unsigned rows = 0;

    assert_non_null(file);
    while (!ended && fgets(line, sizeof(line), file)) {
        assert_non_null(strchr(line, '\n'));
        inside = inside || strcmp(line, "<!-- answers -->\n") == 0;
        if (inside)
            rows += compare_row(line);
        ended = rows && line[0] != '|';
    }
    (void)fclose(file);
    for (unsigned i = 0; i < ANSWERS; i++)
        if (answer_rows[i] != 1)
            fail_msg("%s has %u rows in the docs", answer_name(i), answer_rows[i]);
    for (unsigned i = 0; i < REASONS; i++)
        if (reason_rows[i] != is_answered(i))
            fail_msg("%s has %u rows in the docs", reason_name(i), reason_rows[i]);
}

/* Pods do not start on these, and the kubelet asks for ever. */
static void no_refusal_blocks_pods_for_ever(void **state)
{
    for (unsigned i = 0; i < ANSWERS + REASONS; i++) {
        const enum status_code code =
            i < ANSWERS ? answer_code(i) : reason_code(i - ANSWERS, STATES);

        assert_int_not_equal(code, STATUS_OK);
        assert_int_not_equal(code, STATUS_PERMISSION_DENIED);
        assert_int_not_equal(code, STATUS_INTERNAL);
        assert_int_not_equal(code, STATUS_UNIMPLEMENTED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(docs_table_is_the_codes),
        cmocka_unit_test(no_refusal_blocks_pods_for_ever),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
