/* SPDX-License-Identifier: Apache-2.0 */
/* secret_test.c - which names are secrets, and what of a text may be shown. */
#include "tests/unit/test.h"

#include <string.h>

#include "lib/cleanup.h"
#include "lib/text.h"

static bool is_secret(const char *name)
{
    return secret_is_name(name, strlen(name));
}

static void names_of_secrets(void **state)
{
    static const char *const secrets[] = {
        "password",      "Password2", "S3-Password", "pass",        "smb-pass",    "pass2",
        "dbPass",        "cred",      "creds",       "credentials", "secret",      "secretfile",
        "encryptionKey", "key",       "pw",          "PWD",         "accessToken", "x-auth",
    };
    static const char *const plain[] = {
        "",       "size",  "bypass",   "passthrough", "compass", "noatime",  "sec",
        "credit", "cache", "username", "spwn",        "discard", "logbsize",
    };

    for (size_t i = 0; i < array_length(secrets); i++)
        if (!is_secret(secrets[i]))
            fail_msg("%s", secrets[i]);
    for (size_t i = 0; i < array_length(plain); i++)
        if (is_secret(plain[i]))
            fail_msg("%s", plain[i]);
}

static void only_the_value_of_a_secret_is_hidden(void **state)
{
    static const struct {
        const char *text, *json;
    } cases[] = {
        {"", "\"\""},
        {"ro", "\"ro\""},
        {"password", "\"password\""},
        {"password=", "\"password=\""},
        {"password=hunter2", "\"password=[redacted]\""},
        {"pass=hunter2", "\"pass=[redacted]\""},
        {"credentials=/etc/hunter2", "\"credentials=[redacted]\""},
        {"secret=hunter2", "\"secret=[redacted]\""},
        {"encryptionKey=hunter2", "\"encryptionKey=[redacted]\""},
        {"rw,username=a,password=hun,ter2", "\"rw,username=a,password=[redacted]\""},
        {"x=password=hunter2", "\"x=password=[redacted]\""},
        {"https://host/?token=hunter2", "\"https://host/?token=[redacted]\""},
        {"uid=5,gid=6", "\"uid=5,gid=6\""},
        {"say=\"so\"", "\"say=\\\"so\\\"\""},
        {"a=keys/b=c", "\"a=keys/b=[redacted]\""}, /* too much rather than too little */
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup(buffer_done) struct buffer json = BUFFER_INIT(0);

        assert_int_equal(secret_append_json(&json, cases[i].text), 0);
        assert_string_equal(buffer_text(&json), cases[i].json);
    }
}

static void a_text_without_room_fails(void **state)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(8);

    assert_true(secret_append_json(&json, "password=hunter2") < 0);
    assert_true(buffer_error(&json) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_secrets),
        cmocka_unit_test(only_the_value_of_a_secret_is_hidden),
        cmocka_unit_test(a_text_without_room_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
