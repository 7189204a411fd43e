/* SPDX-License-Identifier: Apache-2.0 */
/* toml_test.c - what is read, what is passed over, and what ends the reading. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"

/* "a.b=text a.c=true a.d=? " */
static int on_item(void *userdata, const struct toml_item *item, struct error *error)
{
    struct buffer *seen = userdata;

    for (unsigned i = 0; i < item->parts; i++)
        assert_int_equal(buffer_append_format(seen, "%s%s", i ? "." : "", item->part[i]), 0);
    if (item->kind == TOML_STRING || item->kind == TOML_ELEMENT)
        assert_int_equal(buffer_append_format(seen, "%s='%s'",
                                              item->kind == TOML_ELEMENT ? "[]" : "", item->text),
                         0);
    else
        assert_int_equal(buffer_append_format(seen, "=%s",
                                              item->kind == TOML_OTHER ? "?"
                                              : item->truth            ? "true"
                                                                       : "false"),
                         0);
    return buffer_append_format(seen, "@%u ", item->line);
}

static void expect(const char *text, const char *items)
{
    cleanup(buffer_done) struct buffer seen = BUFFER_INIT(0);
    struct error error = {0};

    if (toml_read("f", text, strlen(text), on_item, &seen, &error) != 0)
        fail_msg("%s: %s", text, error.text);
    assert_string_equal(buffer_text(&seen), items);
}

static void expect_fault(const char *text, const char *fault)
{
    cleanup(buffer_done) struct buffer seen = BUFFER_INIT(0);
    struct error error = {0};

    if (toml_read("f", text, strlen(text), on_item, &seen, &error) != -EBADMSG)
        fail_msg("read: %s", text);
    if (!strstr(error.text, fault))
        fail_msg("%s: \"%s\", not \"%s\"", text, error.text, fault);
}

static void tables_and_keys_make_names(void **state)
{
    expect("", "");
    expect("a = true", "a=true@1 ");
    expect("# x\n\n[hypervisor.qemu] # y\r\n  enable_debug=false# z\n",
           "hypervisor.qemu.enable_debug=false@4 ");
    expect("[a]\nb.c = \"1\"\n[d]\ne = '2'\n", "a.b.c='1'@2 d.e='2'@4 ");
    expect("[[a.b]]\nc = 1\n[[ a . b ]]\nc = 2\n", "a.b.c=?@2 a.b.c=?@4 ");
    expect("[plugins.\"io.containerd.grpc.v1.cri\".'x.y']\nz = 1\n",
           "plugins.io.containerd.grpc.v1.cri.x.y.z=?@2 ");
}

static void values_have_kinds(void **state)
{
    expect("a = -1_000\nb = 1.5e+3\nc = 1979-05-27T07:32:00Z\nd = inf\n",
           "a=?@1 b=?@2 c=?@3 d=?@4 ");
    expect("a = [ 1, \"]\", # ]\n  [true], {b = 1},\n]\nc = true", "a=?@1 a[]=']'@1 c=true@4 ");
    expect("a = { b = 'x', c = { d = false } }\n", "a.b='x'@1 a.c.d=false@1 ");
    expect("a = {}\nb = []\n", "b=?@2 ");
    expect("a = ['b', \"c\",\n[\"d\"], {e = 'f'}, 1, \"\"\"g\"\"\", \"\"]\n",
           "a=?@1 a[]='b'@1 a[]='c'@1 a[]=''@2 ");
    expect("a = \"\"\"x\n\"y\" \\\"\"\"\"\"\nb = '''\n''it''''\nc = ''", "a=?@2 b=?@4 c=''@5 ");
}

static void strings_are_unescaped(void **state)
{
    expect("a = \"x\\t\\\"\\\\\\u00e4\\U0001F600\"", "a='x\t\"\\\xc3\xa4\xf0\x9f\x98\x80'@1 ");
    expect("a = 'C:\\n'", "a='C:\\n'@1 ");
    expect_fault("a = \"\\q\"", "unknown escape");
    expect_fault("a = \"\\u12\"", "without its digits");
    expect_fault("a = \"\\u0000\"", "no character");
    expect_fault("a = \"\\ud800\"", "no character");
}

static void unknown_syntax_is_reported(void **state)
{
    expect_fault("a", "line 1: neither");
    expect_fault("\n\nkey value\n", "line 3: neither");
    expect_fault("a = yes\n", "the value is neither");
    expect_fault("a = \n", "the value is neither");
    expect_fault("a = \"x", "a string without its end");
    expect_fault("a = \"x\n\"", "a string without its end");
    expect_fault("a = '''x''", "a string without its end");
    expect_fault("a = [1, 2", "an array without its end");
    expect_fault("a = [1 2]", "an array without its end");
    expect_fault("a = {b = 1", "an inline table without its end");
    expect_fault("[a\nb = 1\n", "a [table] without its end");
    expect_fault("[[a]\n", "a [table] without its end");
    expect_fault("a = 1 b = 2\n", "the line goes on");
    expect_fault("a = \"\xff\"", "not UTF-8");
    assert_int_equal(toml_read("f", "a\0b", 3, on_item, NULL, NULL), -EBADMSG);
}

static void everything_has_a_bound(void **state)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);

    for (int i = 0; i < TOML_PARTS + 1; i++)
        assert_int_equal(buffer_append_text(&text, i ? ".a" : "a"), 0);
    expect_fault(buffer_text(&text), "too many parts");
    buffer_clear(&text);
    assert_int_equal(buffer_append_format(&text, "%0*d = 1", TOML_NAME_BYTES, 0), 0);
    expect_fault(buffer_text(&text), "the name is too long");
    buffer_clear(&text);
    assert_int_equal(buffer_append_format(&text, "a = '%0*d'", TOML_TEXT_BYTES, 0), 0);
    expect(buffer_text(&text), "a=?@1 ");
    buffer_clear(&text);
    assert_int_equal(buffer_append_text(&text, "a = "), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(buffer_append_text(&text, "["), 0);
    expect_fault(buffer_text(&text), "nested too deep");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_and_keys_make_names), cmocka_unit_test(values_have_kinds),
        cmocka_unit_test(strings_are_unescaped),      cmocka_unit_test(unknown_syntax_is_reported),
        cmocka_unit_test(everything_has_a_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
