/* SPDX-License-Identifier: Apache-2.0 */
/* entry_name_test.c - names of both layouts and of none. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "observe/observe.h"

static int decode(const char *name, char *ret_path, struct error *error)
{
    ret_path[0] = '\0';
    return entry_name_decode(name, ret_path, error);
}

static void decodes_what_kata_encodes(void **state)
{
    static const char *const paths[] = {
        "/",
        "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/pv/mount",
        "/with space/and \xc3\xbc\xe2\x82\xac",
        "/trailing/",
        "/a/../b//c",
    };
    char name[BASE64URL_NAME_CHARS + 1], path[ENTRY_PATH_BYTES];

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        base64url_encode(paths[i], strlen(paths[i]), name);
        assert_int_equal(decode(name, path, NULL), ENTRY_NAME_PATH);
        assert_string_equal(path, paths[i]);
    }
}

static void decodes_the_longest_path(void **state)
{
    char longest[BASE64URL_PATH_BYTES + 1], name[BASE64URL_NAME_CHARS + 1], path[ENTRY_PATH_BYTES];

    memset(longest, 'x', sizeof(longest) - 1);
    longest[0] = '/';
    longest[sizeof(longest) - 1] = '\0';
    base64url_encode(longest, strlen(longest), name);
    assert_int_equal(strlen(name), BASE64URL_NAME_CHARS);
    assert_int_equal(decode(name, path, NULL), ENTRY_NAME_PATH);
    assert_string_equal(path, longest);
}

static void knows_a_sha256(void **state)
{
    char path[ENTRY_PATH_BYTES];

    assert_int_equal(
        decode("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", path, NULL),
        ENTRY_NAME_SHA256);
    assert_int_equal(
        decode("E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855", path, NULL),
        ENTRY_NAME_OTHER);
}

static void refuses_other_names(void **state)
{
    static const struct {
        const char *name, *why;
    } cases[] = {
        {"lost+found", "neither"},
        {"L2E", "neither"},    /* "/a" without padding is canonical only as "L2E=" */
        {"L2F=", "neither"},   /* trailing bits */
        {"L2E=\n", "neither"}, /* more than base64 */
        {"L2E+", "neither"},   /* the other alphabet */
        {"YS9i", "absolute"},  /* a/b */
        {"L2EA", "NUL"},       /* /a\0 */
        {"L8M=", "UTF-8"},     /* /\xc3 */
        {"====", "neither"},
    };
    char path[ENTRY_PATH_BYTES];
    struct error error;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(decode(cases[i].name, path, &error), ENTRY_NAME_OTHER);
        assert_non_null(strstr(error.text, cases[i].why));
        assert_string_equal(path, "");
    }
}

static void shows_names_harmlessly(void **state)
{
    char shown[SHOWN_NAME_BYTES], name[256];

    entry_name_show("a\x1b[31m\n", shown);
    assert_string_equal(shown, "a\\u001b[31m\\n");
    memset(name, '\x01', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    entry_name_show(name, shown);
    assert_true(strlen(shown) < SHOWN_NAME_BYTES);
    assert_string_equal(shown + strlen(shown) - 3, "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_what_kata_encodes),
        cmocka_unit_test(decodes_the_longest_path),
        cmocka_unit_test(knows_a_sha256),
        cmocka_unit_test(refuses_other_names),
        cmocka_unit_test(shows_names_harmlessly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
