/* SPDX-License-Identifier: Apache-2.0 */
/* node.h - a node's root for one test, gone with it. */
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "config/config.h"
#include "lib/path.h"
#include "tests/unit/doctor/findings.h"
#include "tests/unit/scratch.h"

struct node {
    char name[SCRATCH_BYTES];
    int root;
    struct config config;
    struct written written;
};

/* What is examined from now on stands in a list of its own. */
static inline void node_begin(struct node *node)
{
    written_done(&node->written);
    written_begin(&node->written);
    node->written.findings.root = node->root;
    node->written.findings.config = &node->config;
}

static inline int node_set_up(void **state)
{
    struct node *node = calloc(1, sizeof(*node));

    assert_int_equal(scratch_directory_make(node->name), 0);
    assert_int_equal(path_open_root(node->name, &node->root), 0);
    config_defaults(&node->config);
    node_begin(node);
    *state = node;
    return 0;
}

static inline int node_tear_down(void **state)
{
    struct node *node = *state;
    int r;

    written_done(&node->written);
    (void)close(node->root);
    r = scratch_directory_remove(node->name);
    free(node);
    return r;
}

static inline void node_make(const struct node *node, const char *directory, mode_t mode)
{
    char path[512];

    assert_int_equal(path_make_directories(node->root, directory, 0755), 0);
    (void)snprintf(path, sizeof(path), "%s%s", node->name, directory);
    assert_int_equal(chmod(path, mode), 0);
}

/* Makes its directories too. */
static inline void node_write(const struct node *node, const char *file, const char *text)
{
    char path[512], directory[512];
    FILE *stream;

    (void)snprintf(directory, sizeof(directory), "%s", file);
    *strrchr(directory, '/') = '\0';
    if (directory[0])
        assert_int_equal(path_make_directories(node->root, directory, 0755), 0);
    (void)snprintf(path, sizeof(path), "%s%s", node->name, file);
    stream = fopen(path, "we");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static inline void node_link(const struct node *node, const char *target, const char *file)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s%s", node->name, file);
    assert_int_equal(symlink(target, path), 0);
}

#define NODE_TEST(function) cmocka_unit_test_setup_teardown(function, node_set_up, node_tear_down)
