/* SPDX-License-Identifier: Apache-2.0 */
/* arguments_test.c - crustd's command line and the environment that it reads. */
#include "reconciler/arguments.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "reconciler/core/start_failure.h"
#include "tests/unit/test.h"

#define PARSE(...) parse((const char *const[]){"crustd", ##__VA_ARGS__, NULL})

static struct arguments arguments;
static char output[4096];               /* of the last call, stdout and stderr together */
static char written[16][64], *argv[17]; /* of the last call: what was parsed may borrow from it */

static int forget_environment(void **state)
{
    (void)state;
    arguments = (struct arguments){0};
    return unsetenv("NODE_NAME") | unsetenv(CONFIG_ROOT_VARIABLE) | unsetenv(CONFIG_FILE_VARIABLE);
}

/* Turns stdout and stderr into `file`; returns what was there. */
static int redirect(int descriptor, FILE *file)
{
    int kept = dup(descriptor);

    assert_true(kept >= 0);
    assert_int_equal(dup2(fileno(file), descriptor), descriptor);
    return kept;
}

static void put_back(int descriptor, int kept)
{
    assert_int_equal(dup2(kept, descriptor), descriptor);
    (void)close(kept);
}

static int parse(const char *const *words)
{
    int argc = 0, result, out, err;
    FILE *file = tmpfile();
    size_t length;

    assert_non_null(file);
    for (; words[argc]; argc++)
        (void)snprintf(written[argc], sizeof(written[argc]), "%s", words[argc]);
    for (int i = 0; i < argc; i++)
        argv[i] = written[i];
    argv[argc] = NULL;
    optind = 0; /* glibc: begin anew */
    (void)fflush(stdout);
    out = redirect(STDOUT_FILENO, file);
    err = redirect(STDERR_FILENO, file);
    result = arguments_parse(argc, argv, &arguments);
    (void)fflush(stdout);
    put_back(STDOUT_FILENO, out);
    put_back(STDERR_FILENO, err);
    rewind(file);
    length = fread(output, 1, sizeof(output) - 1, file);
    output[length] = '\0';
    (void)fclose(file);
    return result;
}

static void assert_says(const char *text)
{
    if (!strstr(output, text))
        fail_msg("\"%s\" does not say \"%s\"", output, text);
}

static void without_arguments_all_has_its_default(void **state)
{
    char host[HOST_NAME_MAX + 1] = "";

    (void)state;
    assert_int_equal(PARSE(), -1);
    assert_string_equal(arguments.root, "/");
    assert_null(arguments.config);
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    assert_string_equal(arguments.node, host);
    assert_false(arguments.once || arguments.check_config);
    assert_int_equal(arguments.log_level, LOG_INFO);
    assert_int_equal(arguments.log_format, LOG_LOGFMT);
    assert_string_equal(output, "");
}

static void every_option_is_taken(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--root", "/node", "--config=/etc/c.conf", "--once", "--check-config",
                           "--log-level", "debug", "--log-format", "json"),
                     -1);
    assert_string_equal(arguments.root, "/node");
    assert_string_equal(arguments.config, "/etc/c.conf");
    assert_true(arguments.once && arguments.check_config);
    assert_int_equal(arguments.log_level, LOG_DEBUG);
    assert_int_equal(arguments.log_format, LOG_JSON);
}

static void the_environment_stands_in_for_options(void **state)
{
    (void)state;
    assert_int_equal(setenv(CONFIG_ROOT_VARIABLE, "/host", 1), 0);
    assert_int_equal(setenv(CONFIG_FILE_VARIABLE, "/etc/pod.conf", 1), 0);
    assert_int_equal(setenv("NODE_NAME", "node-7", 1), 0);
    assert_int_equal(PARSE(), -1);
    assert_string_equal(arguments.root, "/host");
    assert_string_equal(arguments.config, "/etc/pod.conf");
    assert_string_equal(arguments.node, "node-7");
    assert_int_equal(PARSE("--root=/other"), -1);
    assert_string_equal(arguments.root, "/other");
    assert_string_equal(arguments.config, "/etc/pod.conf");
}

static void an_empty_node_name_counts_as_absent(void **state)
{
    (void)state;
    assert_int_equal(setenv("NODE_NAME", "", 1), 0);
    assert_int_equal(PARSE(), -1);
    assert_string_not_equal(arguments.node, "");
}

static void usage_errors_are_printed_and_change_nothing(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--log-level", "loud"), EXIT_USAGE);
    assert_says("crustd: --log-level: unknown value loud");
    assert_int_equal(PARSE("--log-format", "xml"), EXIT_USAGE);
    assert_says("crustd: --log-format: unknown value xml");
    assert_int_equal(PARSE("--once", "now"), EXIT_USAGE);
    assert_says("crustd: unexpected argument now");
    assert_int_equal(PARSE("--loud"), EXIT_USAGE);
    assert_says("Try 'crustd --help'.");
    assert_int_equal(PARSE("--root"), EXIT_USAGE);
    assert_says("Try 'crustd --help'.");
    assert_null(arguments.root);
}

static void version_and_help_end_it(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--version"), 0);
    assert_string_equal(output, "crustd " CRUST_VERSION "\n");
    assert_int_equal(PARSE("--help"), 0);
    assert_says("Usage: crustd [OPTION]...");
    assert_says("Exit codes:");
}

#define TEST(name) cmocka_unit_test_setup(name, forget_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_arguments_all_has_its_default),
        TEST(every_option_is_taken),
        TEST(the_environment_stands_in_for_options),
        TEST(an_empty_node_name_counts_as_absent),
        TEST(usage_errors_are_printed_and_change_nothing),
        TEST(version_and_help_end_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
