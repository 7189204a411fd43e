/* SPDX-License-Identifier: Apache-2.0 */
/* options_test.c - the command line: what is understood, and what is refused with which words. */
#include "crustctl/crustctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "tests/unit/test.h"

/* The words must outlive the options, which borrow them. */
struct command_line {
    char text[256];
    struct options options;
    struct error error;
};

static int parse(struct command_line *line, const char *words)
{
    char *argv[16];
    int argc = 0;

    (void)snprintf(line->text, sizeof(line->text), "crustctl %s", words);
    for (char *rest = NULL, *word = strtok_r(line->text, " ", &rest); word && argc < 15;
         word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    argv[argc] = NULL;
    return options_parse(argc, argv, &line->options, &line->error);
}

static void options_stand_anywhere(void **state)
{
    static const char *const lines[] = {
        "--root /node -o json journal -n 5 -f",
        "journal -n5 -f --root=/node --output=json",
        "journal -fn 5 -ojson --root /node",
    };

    for (size_t i = 0; i < array_length(lines); i++) {
        struct command_line line = {0};

        assert_int_equal(parse(&line, lines[i]), 0);
        assert_string_equal(line.options.command, "journal");
        assert_string_equal(line.options.root, "/node");
        assert_true(line.options.json);
        assert_int_equal(line.options.lines, 5);
        assert_int_equal(line.options.given, OPTION_LINES | OPTION_FOLLOW);
    }
}

static void defaults_are_the_host(void **state)
{
    struct command_line line = {0};

    assert_int_equal(parse(&line, "status"), 0);
    assert_string_equal(line.options.root, "/");
    assert_null(line.options.config_file);
    assert_false(line.options.json);
    assert_int_equal(parse(&line, "-- volume --strange-name"), 0);
    assert_string_equal(line.options.operand[0], "--strange-name");
}

static void the_environment_stands_for_what_is_not_given(void **state)
{
    struct command_line line = {0};

    assert_int_equal(setenv("CRUST_ROOT", "/host", 1), 0);
    assert_int_equal(setenv("CRUST_CONFIG", "/etc/it", 1), 0);
    assert_int_equal(parse(&line, "volumes"), 0);
    assert_string_equal(line.options.root, "/host");
    assert_string_equal(line.options.config_file, "/etc/it");
    assert_int_equal(parse(&line, "volumes --root /node --config /given"), 0);
    assert_string_equal(line.options.root, "/node");
    assert_string_equal(line.options.config_file, "/given");
    assert_int_equal(setenv("CRUST_ROOT", "", 1), 0);
    assert_int_equal(unsetenv("CRUST_CONFIG"), 0);
    assert_int_equal(parse(&line, "volumes"), 0);
    assert_string_equal(line.options.root, "/");
    assert_null(line.options.config_file);
    assert_int_equal(unsetenv("CRUST_ROOT"), 0);
}

static void a_command_may_have_two_words(void **state)
{
    static const struct {
        const char *words, *name;
        unsigned operands;
    } cases[] = {
        {"crust stats /v", "crust stats", 1},
        {"crust resize /v 1 2", "crust resize", 3},
        {"fs get-stats pod -o json /dev/sdb", "fs get-stats", 2},
        {"resize crust", "resize", 1},
        {"crust", NULL, 0},
        {"crust burn", NULL, 1},
        {"stats stats", "stats", 1},
        {"nothing", NULL, 0},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct command_line line = {0};
        const struct command *command;

        assert_int_equal(parse(&line, cases[i].words), 0);
        command = command_choose(&line.options);
        assert_int_equal(!command, !cases[i].name);
        if (command)
            assert_string_equal(command->name, cases[i].name);
        assert_int_equal(line.options.operands, cases[i].operands);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_stand_anywhere),
        cmocka_unit_test(defaults_are_the_host),
        cmocka_unit_test(the_environment_stands_for_what_is_not_given),
        cmocka_unit_test(a_command_may_have_two_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
