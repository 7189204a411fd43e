/* SPDX-License-Identifier: Apache-2.0 */
/* json_test.c - what passes the gate, what does not, and how members are found behind it. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"

static const struct json_limits limits = {1024, 4, 0};

static int parse(const char *text, struct error *error)
{
    cJSON *value = NULL;
    int r = json_parse(text, strlen(text), limits, &value, error);

    if (r < 0)
        assert_null(value);
    cJSON_Delete(value);
    return r;
}

static void accepts_json(void **state)
{
    static const char *const cases[] = {
        "null",
        " true ",
        "false",
        "0",
        "-0",
        "-12.5e+3",
        "1E5",
        "\"\"",
        "[]",
        "{}",
        "\r\n\t{ }",
        "[1, \"a\", [{}]]",
        "{\"a\":{\"a\":1},\"b\":[{\"a\":1},{\"a\":2}]}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\\ud83d\\uDE00\"",
        "\"\xC3\xA4\"",
        "[[[[]]]]",
        "{\"\":1,\" \":2}",
        "{\"\xC3\xA4\":1,\"\xC3\x84\":2}",
    };
    struct error error;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(parse(cases[i], &error), 0);
}

static void refuses_with_a_reason(void **state)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "expected a value at byte 0"},
        {"  ", "expected a value at byte 2"},
        {"{} x", "text after the value at byte 3"},
        {"nul", "expected a value at byte 0"},
        {"NaN", "expected a value at byte 0"},
        {"01", "text after the value at byte 1"},
        {"+1", "expected a value at byte 0"},
        {"-", "expected a value at byte 0"},
        {"1.", "bad number at byte 0"},
        {"[1e]", "bad number at byte 1"},
        {".5", "expected a value at byte 0"},
        {"[1,]", "expected a value at byte 3"},
        {"[1 2]", "expected ',' or the closing bracket at byte 3"},
        {"[", "expected a value at byte 1"},
        {"{\"a\"}", "expected ':' at byte 4"},
        {"{\"a\":1,}", "expected a string at byte 7"},
        {"{a:1}", "expected a string at byte 1"},
        {"{\"a\":1", "expected ',' or the closing bracket at byte 6"},
        {"[1}", "expected ',' or the closing bracket at byte 2"},
        {"\"a", "string without an end at byte 0"},
        {"\"a\\", "unknown escape at byte 2"},
        {"\"a\nb\"", "control character in a string at byte 2"},
        {"\"\\x\"", "unknown escape at byte 1"},
        {"\"\\u12\"", "bad \\u escape at byte 5"},
        {"\"\\u00g0\"", "bad \\u escape at byte 5"},
        {"\"\\u0000\"", "\\u0000 at byte 1"},
        {"\"\\ud800\"", "lone surrogate at byte 1"},
        {"\"\\udc00\"", "lone surrogate at byte 1"},
        {"\"\\ud800\\u0041\"", "lone surrogate at byte 1"},
        {"\"\\ud800\\n\"", "lone surrogate at byte 1"},
        {"\"\xFF\"", "invalid UTF-8 at byte 1"},
        {"\"\xC0\x80\"", "invalid UTF-8 at byte 1"},
        {"\"\xED\xA0\x80\"", "invalid UTF-8 at byte 1"},
        {"\xEF\xBB\xBF{}", "expected a value at byte 0"},
        {"// c\n1", "expected a value at byte 0"},
        {"[[[[[]]]]]", "nested too deeply at byte 4"},
        {"{\"a\":{\"a\":{\"a\":{\"a\":{}}}}}", "nested too deeply at byte 20"},
    };
    struct error error;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].text, &error), -EBADMSG);
        assert_string_equal(error.text, cases[i].reason);
    }
}

static int read_names(const char *text, const char *names, struct error *error)
{
    cJSON *value = NULL;
    int r = json_read(text, strlen(text), limits, names, &value, error);

    if (r != FILE_READ)
        assert_null(value);
    cJSON_Delete(value);
    return r;
}

static void refuses_a_key_that_is_read_twice(void **state)
{
    static const char *const cases[] = {
        "{\"device\":1,\"device\":1}",
        "{\"device\":1,\"x\":{},\"DEVICE\":2}",
        "{\"device\":1,\"devic\\u0065\":2}",
        "{\"device\":1,\"devic\\u0045\":2}",
        "{\"k\":1,\"\\u212a\":2}",
        "{\"fstype\":1,\"f\xC5\xBFtype\":2}",
        "{\"in\":{\"b\":1,\"c\":[{\"c\":1}],\"B\":2}}",
        "{\"in\":[{\"b\":1},{\"b\":1,\"b\":2}]}",
        "{\"IN\":{\"of.a.map\":1,\"of.a\\u002emap\":2}}",
    };
    struct error error;

    for (size_t i = 0; i < array_length(cases); i++) {
        assert_int_equal(read_names(cases[i], "device k fstype in{b =of.a.map}", &error),
                         FILE_WRONG);
        assert_memory_equal(error.text, "key a second time", 17);
    }
    assert_int_equal(read_names("{\"a\":1, \"b\":2, \"A\":3}", "a", &error), FILE_WRONG);
    assert_string_equal(error.text, "key a second time at byte 15");
}

static void others_may_have_a_key_twice(void **state)
{
    static const char *const cases[] = {
        "{\"x\":1,\"x\":1}",
        "{\"device\":{\"x\":1,\"X\":2,\"x\":{\"device\":1,\"device\":2}}}",
        "{\"x\":{\"device\":1,\"device\":2}}",
        "{\"in\":{\"device\":1,\"Device\":2}}",
        "{\"in\":{\"of.a.map\":1,\"Of.a.map\":2,\"OF.A.MAP\":3}}",
        "{\"in\":[{\"b\":1},{\"b\":1}]}",
        "{\"device\":1,\"device.\":2,\"devic\":3,\"\":4}",
    };
    struct error error;

    for (size_t i = 0; i < array_length(cases); i++)
        assert_int_equal(read_names(cases[i], "device k fstype in{b =of.a.map}", &error),
                         FILE_READ);
}

/* Without names every member is kept; one that is there twice is found by nobody. */
static void a_member_that_is_there_twice_is_none(void **state)
{
    static const char text[] = "{\"a\":1,\"b\":2,\"A\":3}";
    uint64_t number = 0;
    cJSON *value = NULL;

    assert_int_equal(json_parse(text, sizeof(text) - 1, limits, &value, NULL), 0);
    assert_null(json_member(value, "a"));
    assert_int_equal(json_number(value, "a", &number), JSON_NUMBER_WRONG);
    assert_int_equal(json_number(value, "b", &number), JSON_NUMBER);
    cJSON_Delete(value);
}

static void keeps_what_is_named_and_nothing_else(void **state)
{
    static const struct {
        const char *text, *kept;
    } cases[] = {
        {"{}", "{}"},
        {"7", "7"},
        {"[{\"x\":1},2,{\"a\":3}]", "[{},2,{\"a\":3}]"},
        {"{\"x\":[{\"a\":1}],\"A\":[{\"x\":1}],\"y\":{}}", "{\"a\":[{\"x\":1}]}"},
        {"{\"in\":[{\"x\":1,\"b\":\"{\"},[],\"[\",{\"y\":1},null]}",
         "{\"in\":[{\"b\":\"{\"},[],\"[\",{},null]}"},
        {"{\"in\":{\"b\":1,\"two\":{\"deep\":true,\"b\":2}},\"a\":-0.5}",
         "{\"in\":{\"b\":1,\"two\":{\"deep\":true}},\"a\":-0.5}"},
        {"{\"in\":7,\"last\":\"\\u00e4\"}", "{\"in\":7,\"last\":\"\xC3\xA4\"}"},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        cJSON *value = NULL;
        char *kept;

        assert_int_equal(json_read(cases[i].text, strlen(cases[i].text), limits,
                                   "a in{b two{deep}} last", &value, NULL),
                         FILE_READ);
        kept = cJSON_PrintUnformatted(value);
        assert_string_equal(kept, cases[i].kept);
        free(kept);
        cJSON_Delete(value);
    }
}

/* What nobody reads has to be JSON all the same. */
static void a_fault_is_found_anywhere(void **state)
{
    static const char *const cases[] = {"{\"x\":\"\xFF\"}", "{\"x\":\"\\u0000\"}", "{\"x\":[1,]}",
                                        "{\"x\":[[[[1]]]]}", "{\"x\":1} y"};
    struct error error;

    for (size_t i = 0; i < array_length(cases); i++)
        assert_int_equal(read_names(cases[i], "a", &error), FILE_WRONG);
}

static void every_prefix_is_cut(void **state)
{
    static const char text[] = " {\"a\" : [true,false,null,-1.5e+3,\"\\n\\ud83d\\ude00\xC3\xA4"
                               "\xE2\x84\xAA\xF0\x9F\x98\x80\"], \"x\":{ \"in\":0}}";
    struct error error;

    for (size_t length = 0; length < sizeof(text) - 1; length++) {
        cJSON *value = NULL;

        assert_int_equal(json_read(text, length, limits, "a", &value, &error), FILE_CUT);
        assert_null(value);
    }
    assert_int_equal(read_names(text, "a", &error), FILE_READ);
}

static void refuses_a_raw_nul(void **state)
{
    static const char text[] = "\"a\0b\"", after[] = "{}\0";
    struct error error;
    cJSON *value = NULL;

    assert_int_equal(json_parse(text, sizeof(text) - 1, limits, &value, &error), -EBADMSG);
    assert_int_equal(json_parse(after, sizeof(after) - 1, limits, &value, &error), -EBADMSG);
    assert_null(value);
}

/* The text is delimited by its length alone: what follows is not looked at. */
static void parser_reads_only_the_given_length(void **state)
{
    cJSON *value = NULL;

    for (size_t length = 0; length < 12; length++) {
        char *exact = malloc(length + 1); /* so that the sanitizer sees a byte too many */

        assert_non_null(exact);
        exact = realloc(exact, length ? length : 1);
        memcpy(exact, "{\"a\":[1, 2]}", length);
        assert_int_equal(json_parse(exact, length, limits, &value, NULL), -EBADMSG);
        free(exact);
    }
    assert_int_equal(json_parse("12345", 3, limits, &value, NULL), 0);
    assert_int_equal(value->valueint, 123);
    cJSON_Delete(value);
}

static void refuses_long_numbers(void **state)
{
    char text[80];

    memset(text, '1', sizeof(text));
    text[64] = '\0';
    assert_int_equal(parse(text, NULL), -EBADMSG);
    text[63] = '\0';
    assert_int_equal(parse(text, NULL), 0);
}

static void keeps_to_its_size(void **state)
{
    struct json_limits small = {4, 1, 0};
    cJSON *value = NULL;

    assert_int_equal(json_parse("[12]", 4, small, &value, NULL), 0);
    cJSON_Delete(value);
    assert_int_equal(json_parse("[123]", 5, small, &value, NULL), -EMSGSIZE);
    small.depth = 0;
    assert_int_equal(json_parse("[]", 2, small, &value, NULL), -EBADMSG);
}

/* The bound on recursion holds whatever the caller asks for. */
static void survives_any_depth(void **state)
{
    struct json_limits deep = {1024 * 1024, 1000000, 0};
    char *text = malloc(500000);
    cJSON *value = NULL;

    assert_non_null(text);
    memset(text, '[', 500000);
    assert_int_equal(json_parse(text, 500000, deep, &value, NULL), -EBADMSG);
    free(text);
}

/* Names that are nearly the ones that are read, and longer than any. */
static void long_keys_are_no_names(void **state)
{
    char text[700], key[300];
    struct error error;

    memset(key, 'a', sizeof(key));
    for (size_t length = 60; length < sizeof(key); length++) {
        (void)snprintf(text, sizeof(text), "{\"%.*s\":1,\"%.*s\":2}", (int)length, key, (int)length,
                       key);
        assert_int_equal(read_names(text, "a aa", &error), FILE_READ);
    }
}

static void finds_members_as_go_does(void **state)
{
    static const char text[] =
        "{\"Volume-Type\":\"block\",\"f\xC5\xBFtype\":\"xfs\",\"n\":7,\"z\":null}";
    cJSON *value = NULL;

    assert_int_equal(json_parse(text, sizeof(text) - 1, limits, &value, NULL), 0);
    assert_string_equal(json_string(value, "volume-type"), "block");
    assert_string_equal(json_string(value, "fstype"), "xfs");
    assert_null(json_string(value, "volume-typ"));
    assert_null(json_string(value, "volume-type2"));
    assert_null(json_string(value, "n"));
    assert_null(json_string(value, "z"));
    assert_non_null(json_member(value, "Z"));
    assert_null(json_member(json_member(value, "n"), "n"));
    assert_null(json_member(NULL, "n"));
    cJSON_Delete(value);
}

static void reads_whole_numbers(void **state)
{
    static const char text[] = "{\"zero\":0,\"max\":9007199254740991,\"beyond\":9007199254740993,"
                               "\"half\":0.5,\"minus\":-1,\"text\":\"1\",\"huge\":1e999,\"e\":1e3}";
    uint64_t number = 77;
    cJSON *value = NULL;

    assert_int_equal(json_parse(text, sizeof(text) - 1, limits, &value, NULL), 0);
    assert_int_equal(json_number(value, "absent", &number), JSON_NUMBER_ABSENT);
    assert_int_equal(json_number(value, "beyond", &number), JSON_NUMBER_WRONG);
    assert_int_equal(json_number(value, "half", &number), JSON_NUMBER_WRONG);
    assert_int_equal(json_number(value, "minus", &number), JSON_NUMBER_WRONG);
    assert_int_equal(json_number(value, "text", &number), JSON_NUMBER_WRONG);
    assert_int_equal(json_number(value, "huge", &number), JSON_NUMBER_WRONG);
    assert_int_equal(number, 77);
    assert_int_equal(json_number(value, "zero", &number), 0);
    assert_int_equal(number, 0);
    assert_int_equal(json_number(value, "max", &number), 0);
    assert_int_equal(number, UINT64_C(9007199254740991));
    assert_int_equal(json_number(value, "e", &number), 0);
    assert_int_equal(number, 1000);
    cJSON_Delete(value);
}

static void writes_strings(void **state)
{
    struct buffer text = BUFFER_INIT(64), small = BUFFER_INIT(6);
    struct buffer_mark mark;

    assert_int_equal(json_append_string(&text, "a\"\\\n\x02\xFFz"), 0);
    assert_string_equal(buffer_text(&text), "\"a\\\"\\\\\\n\\u0002\xEF\xBF\xBDz\"");
    buffer_clear(&text);
    assert_int_equal(json_append_string(&text, NULL), 0);
    assert_string_equal(buffer_text(&text), "null");
    assert_int_equal(buffer_append_text(&small, "x:"), 0);
    mark = buffer_mark(&small);
    assert_int_equal(json_append_string(&small, "abc"), -EMSGSIZE);
    assert_string_equal(buffer_text(&small), "x:");
    assert_int_equal(json_append_string(&small, "ab"), -EMSGSIZE);
    buffer_rewind(&small, mark);
    assert_int_equal(json_append_string(&small, "ab"), 0);
    assert_string_equal(buffer_text(&small), "x:\"ab\"");
    buffer_done(&small);
    buffer_done(&text);
}

static void writes_members(void **state)
{
    struct buffer text = BUFFER_INIT(64);

    json_append_name(&text, "a");
    buffer_append_text(&text, "{");
    json_append_member(&text, "b", "c\n");
    json_append_member(&text, "d", NULL);
    assert_int_equal(buffer_append_text(&text, "}"), 0);
    assert_string_equal(buffer_text(&text), "\"a\":{\"b\":\"c\\n\",\"d\":null}");
    buffer_done(&text);
}

/* Each becomes a node of cJSON's: keys do not count, empty arrays and objects do. */
static void counts_values_before_any_is_made(void **state)
{
    static const char *const five[] = {"[0,0,0,0]", "[[],[],{},\"\"]", "{\"a\":{\"b\":[1,true]}}"};
    static const char *const six[] = {"[0,0,0,0,0]", "[[],[],{},\"\",null]",
                                      "{\"a\":{\"b\":[1,true,2]}}"};
    static const char skipping[] = "{\"x\":[1,2,3],\"a\":[1,2,3]}";
    static const char keeping[] = "{\"x\":[1],\"a\":[1,2]}";
    const struct json_limits few = {1024, 4, 5};
    struct error error;
    cJSON *value;

    for (size_t i = 0; i < array_length(five); i++) {
        assert_int_equal(json_parse(five[i], strlen(five[i]), few, &value, &error), 0);
        cJSON_Delete(value);
        assert_int_equal(json_parse(six[i], strlen(six[i]), few, &value, &error), JSON_WRONG);
        assert_non_null(strstr(error.text, "more values than are read"));
    }
    assert_int_equal(json_read(skipping, sizeof(skipping) - 1, few, "a", &value, &error), 0);
    cJSON_Delete(value);
    assert_int_equal(json_read(keeping, sizeof(keeping) - 1, few, "x a", &value, &error),
                     FILE_WRONG);
    assert_string_equal(error.text, "a: more values than are read at byte 16");
}

static void knows_text(void **state)
{
    assert_true(json_is_text("", 0));
    assert_true(json_is_text("\xC3\xA4", 2));
    assert_false(json_is_text("a\0b", 3));
    assert_false(json_is_text("\xC3", 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_json),
        cmocka_unit_test(refuses_with_a_reason),
        cmocka_unit_test(refuses_a_key_that_is_read_twice),
        cmocka_unit_test(others_may_have_a_key_twice),
        cmocka_unit_test(a_member_that_is_there_twice_is_none),
        cmocka_unit_test(keeps_what_is_named_and_nothing_else),
        cmocka_unit_test(a_fault_is_found_anywhere),
        cmocka_unit_test(every_prefix_is_cut),
        cmocka_unit_test(refuses_a_raw_nul),
        cmocka_unit_test(parser_reads_only_the_given_length),
        cmocka_unit_test(refuses_long_numbers),
        cmocka_unit_test(keeps_to_its_size),
        cmocka_unit_test(survives_any_depth),
        cmocka_unit_test(writes_members),
        cmocka_unit_test(long_keys_are_no_names),
        cmocka_unit_test(finds_members_as_go_does),
        cmocka_unit_test(reads_whole_numbers),
        cmocka_unit_test(writes_strings),
        cmocka_unit_test(knows_text),
        cmocka_unit_test(counts_values_before_any_is_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
