/* SPDX-License-Identifier: Apache-2.0 */
/* reference_test.c - docs/reference/configuration.md and files.md against the table of keys. */
#include "tests/unit/reference.h"

#include "config/keys.h"

static const char *type_text(enum key_type type)
{
    static const char *const texts[] = {
        [KEY_PATH] = "path",      [KEY_PATHS] = "list of paths",    [KEY_GROUP] = "group",
        [KEY_LISTEN] = "address", [KEY_NUMBER] = "number",          [KEY_SWITCH] = "switch",
        [KEY_CHOICE] = "choice",  [KEY_ROUTES] = "list of choices", [KEY_WORDS] = "list of words",
    };

    return texts[type];
}

/* The values that a key takes, where its type does not say it all. */
static void values_text(const struct config_key *key, char *ret_text, size_t size)
{
    *ret_text = '\0';
    if (key->type == KEY_NUMBER)
        (void)snprintf(ret_text, size, "%u to %u", key->minimum, key->maximum);
    if (key->type == KEY_SWITCH)
        (void)snprintf(ret_text, size, "off, on");
    if (key->type == KEY_PATHS && key->minimum)
        (void)snprintf(ret_text, size, "at least %u", key->minimum);
    for (size_t i = 0; key->choices && key->choices[i]; i++)
        reference_append(ret_text, size, key->choices[i]);
}

static void every_key_has_its_row(void **state)
{
    struct reference page;

    reference_open(&page, "docs/reference/configuration.md", "keys");
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        char name[128], values[512];

        (void)snprintf(name, sizeof(name), "%s.%s", key->section, key->name);
        values_text(key, values, sizeof(values));
        reference_expect(&page, name);
        reference_expect_cell(&page, 1, type_text(key->type));
        reference_expect_cell(&page, 2, *key->default_value ? key->default_value : "empty");
        reference_expect_cell(&page, 3, values);
        reference_expect_cell(&page, 4, key->restart ? "restart" : "reload");
        reference_expect_words(&page, 5);
    }
    reference_expect_end(&page);
}

static void every_path_has_its_place(void **state)
{
    struct reference page;

    reference_open(&page, "docs/reference/files.md", "places");
    for (size_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        char name[128];

        if (strcmp(key->section, "paths") != 0 || key->type == KEY_GROUP)
            continue;
        (void)snprintf(name, sizeof(name), "%s.%s", key->section, key->name);
        reference_expect(&page, name);
        reference_expect_cell(&page, 1, *key->default_value ? key->default_value : "empty");
        reference_expect_words(&page, 2);
        reference_expect_words(&page, 3);
    }
    reference_expect_end(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_has_its_row),
        cmocka_unit_test(every_path_has_its_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
