/* SPDX-License-Identifier: Apache-2.0 */
/* serial_test.c - serials that a guest accepts, and that are nobody else's. */
#include "reconciler/drive/claim.h"

#include <stdio.h>
#include <string.h>

#include "agent-client/drive_call.h"
#include "tests/unit/test.h"

#define BOOT    "8d1c5ad6-9a1e-4bd5-a2a8-0b8a5bd4c5e6"
#define SANDBOX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const char *make(const char *boot_id, const char *sandbox_id, const char *drive_id)
{
    static char serials[2][DRIVE_SERIAL_CHARS + 1];
    static unsigned turn;
    char *serial = serials[turn++ % 2];

    drive_serial_make(boot_id, sandbox_id, drive_id, serial);
    assert_true(drive_serial_is_valid(serial));
    return serial;
}

/* What `printf 'boot\0drive\0sandbox\0' | sha256sum | xxd -r -p | base32` begins with, in lower
 * case: it must be the same in every release, because a drive outlives crustd. */
static void is_the_hash_in_base32(void **state)
{
    assert_string_equal(make("boot", "sandbox", "drive"), "crust-obm2gvjbf3ukmq");
}

static void each_part_counts(void **state)
{
    char boot[2000] = "";

    assert_string_equal(make(BOOT, SANDBOX, "data"), make(BOOT, SANDBOX, "data"));
    assert_string_not_equal(make(BOOT, SANDBOX, "data"), make("", SANDBOX, "data"));
    assert_string_not_equal(make(BOOT, SANDBOX, "data"), make(BOOT, "", "data"));
    assert_string_not_equal(make(BOOT, SANDBOX, "data"), make(BOOT, SANDBOX, "data1"));
    assert_string_not_equal(make("a", "c", "b"), make("ab", "c", ""));
    assert_string_not_equal(make("a", "bc", ""), make("a", "c", "b"));
    memset(boot, 'b', sizeof(boot) - 1); /* parts that are too long are cut */
    (void)make(boot, boot, boot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_hash_in_base32),
        cmocka_unit_test(each_part_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
