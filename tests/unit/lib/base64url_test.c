/* SPDX-License-Identifier: Apache-2.0 */
/* base64url_test.c - one text for one value: nothing else decodes. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "lib/encode.h"

static void known_texts(void **state)
{
    /* RFC 4648 section 10, and the two characters that differ from plain base64. */
    static const char *const cases[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xFB\xFF", "-_8="},
    };
    char text[16], data[16];
    size_t length;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        base64url_encode(cases[i][0], strlen(cases[i][0]), text);
        assert_string_equal(text, cases[i][1]);
        assert_int_equal(base64url_decode(text, strlen(text), data, sizeof(data), &length), 0);
        assert_int_equal(length, strlen(cases[i][0]));
        assert_memory_equal(data, cases[i][0], length);
    }
}

static void every_length_comes_back(void **state)
{
    unsigned char data[300], back[300];
    char text[BASE64URL_ENCODED_LENGTH(300) + 1];
    size_t decoded;

    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t length = 0; length <= sizeof(data); length++) {
        base64url_encode(data, length, text);
        assert_int_equal(strlen(text), BASE64URL_ENCODED_LENGTH(length));
        assert_int_equal(base64url_decode(text, strlen(text), back, length, &decoded), 0);
        assert_int_equal(decoded, length);
        assert_memory_equal(back, data, length);
    }
}

static void refuses_other_spellings(void **state)
{
    static const char *const cases[] = {
        "Z",    "Zg",   "Zg=",  "Zg===",  "Zh==",     "Zm9=",      "+/8=",       "Zg==\n", "Z g=",
        "Zg= ", "====", "=Zg=", "Zm9vYg", "Zg==Zg==", "Zm9v\nYg=", "Zm\xC3\xA4", "    ",
    };
    char data[32] = "untouched";
    size_t length = 77;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(base64url_decode(cases[i], strlen(cases[i]), data, sizeof(data), &length),
                         -EINVAL);
    assert_string_equal(data, "untouched");
    assert_int_equal(length, 77);
}

/* Each byte in each place of a group: what decodes is what encoding gives. */
static void only_canonical_text_decodes(void **state)
{
    static const unsigned accepted[] = {64, 64, 64, 65}; /* "AAA=" is a group as well */

    for (unsigned place = 0; place < 4; place++) {
        unsigned count = 0;

        for (unsigned byte = 0; byte < 256; byte++) {
            char text[] = "AAAA", again[8], data[3];
            size_t length;

            text[place] = (char)byte;
            if (base64url_decode(text, 4, data, sizeof(data), &length) < 0)
                continue;
            base64url_encode(data, length, again);
            assert_string_equal(again, text);
            count++;
        }
        assert_int_equal(count, accepted[place]);
    }
}

static void padding_only_at_the_end(void **state)
{
    char text[129], data[128];
    size_t length;

    memset(text, 'A', 128);
    text[128] = '\0';
    text[63] = '='; /* ends the first of the decoder's pieces */
    assert_int_equal(base64url_decode(text, 128, data, sizeof(data), &length), -EINVAL);
}

static void keeps_to_its_room(void **state)
{
    char data[3] = {0, 0, 'x'};
    size_t length = 77;

    assert_int_equal(base64url_decode("Zm9v", 4, data, 2, &length), -EMSGSIZE);
    assert_int_equal(length, 77);
    assert_int_equal(data[0], 0);
    assert_int_equal(base64url_decode("Zm8=", 4, data, 2, &length), 0);
    assert_int_equal(length, 2);
    assert_int_equal(data[2], 'x');
}

static void longest_path_is_a_file_name(void **state)
{
    assert_int_equal(BASE64URL_ENCODED_LENGTH(BASE64URL_PATH_BYTES), BASE64URL_NAME_CHARS);
    assert_true(BASE64URL_ENCODED_LENGTH(BASE64URL_PATH_BYTES + 1) > 255);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts),
        cmocka_unit_test(every_length_comes_back),
        cmocka_unit_test(refuses_other_spellings),
        cmocka_unit_test(only_canonical_text_decodes),
        cmocka_unit_test(padding_only_at_the_end),
        cmocka_unit_test(keeps_to_its_room),
        cmocka_unit_test(longest_path_is_a_file_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
