/* SPDX-License-Identifier: Apache-2.0 */
/* hmp_codec.c - parses tables that were made for people.
 *
 * A block in `info block` looks like this; blank lines separate blocks, but also occur within one:
 *
 *     NODE: FILE (DRIVER, read-only)          or  DEVICE (NODE): FILE (DRIVER)
 *         Attached to:      QOM PATH          or  NODE: [not inserted]
 *
 *     Images:
 *     image: FILE
 *     virtual size: 64 MiB (67108864 bytes)   then the same for its backing file, if any
 *
 * A file name could contain line ends and forge blocks. It cannot hide the true ones, though, so a
 * forged block makes a name appear twice, which qemu_nodes_add() refuses.
 */
#include "hypervisor/hmp_codec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

static const char prompt[] = "\n(qemu) ";

static bool ends_with_prompt(const struct buffer *input)
{
    size_t length = sizeof(prompt) - 1;

    return input->length >= length &&
           memcmp(input->data + input->length - length, prompt, length) == 0;
}

/* Appends text[0, length), with each CR LF replaced by LF. */
static int append_lines(struct buffer *output, const char *text, size_t length)
{
    while (length) {
        const char *end = memmem(text, length, "\r\n", 2);
        size_t part = end ? (size_t)(end - text) : length;

        buffer_append(output, text, part);
        if (end)
            buffer_append(output, "\n", 1);
        part += end ? 2 : 0;
        text += part;
        length -= part;
    }
    return buffer_error(output);
}

int hmp_decode(struct buffer *input, struct buffer *ret_text, struct error *error)
{
    const char *start;
    size_t skipped, end;
    int r = 0;

    if (input->length >= HMP_REPLY_BYTES)
        return error_set(error, -EMSGSIZE, "the monitor sent a reply beyond %d bytes",
                         HMP_REPLY_BYTES);
    if (!ends_with_prompt(input))
        return HMP_INCOMPLETE;
    if (!json_is_text(input->data, input->length))
        return error_set(error, -EBADMSG, "the monitor sent a reply that is no text");
    start = memchr(input->data, '\n', input->length);
    skipped = (size_t)(start + 1 - input->data);
    end = input->length - (sizeof(prompt) - 1) + 1;
    if (skipped < end)
        r = append_lines(ret_text, input->data + skipped, end - skipped);
    if (r < 0)
        return error_set_errno(error, r, "cannot keep the monitor's reply");
    buffer_clear(input);
    return HMP_DECODED;
}

void hmp_read_version(const struct buffer *input, char *ret_version, size_t size)
{
    static const char before[] = "QEMU ";
    const char *text = buffer_text(input), *version = text + strlen(before);

    ret_version[0] = '\0';
    if (strncmp(text, before, strlen(before)) == 0)
        text_clean(version, strcspn(version, " \r\n"), ret_version, size);
}

/* A block while its lines are read. Its texts point into the copy of the line. */
struct block {
    struct qemu_node node;
    const char *file;
    bool open;
    bool images;
    bool sized;
};

static int refuse(const char *line, struct error *error)
{
    return error_set(error, -EBADMSG, "info block: cannot read \"%.100s\"", line);
}

static int copy_name(char ret_name[static QEMU_NAME_BYTES], const char *text, size_t length,
                     const char *line, struct error *error)
{
    if (length == 0 || length >= QEMU_NAME_BYTES)
        return refuse(line, error);
    memcpy(ret_name, text, length);
    ret_name[length] = '\0';
    return 0;
}

/* "NODE" or "DEVICE (NODE)". */
static int read_name(struct qemu_node *node, const char *line, size_t length, struct error *error)
{
    const char *inner = memmem(line, length, " (", 2);

    if (!inner)
        return copy_name(node->name, line, length, line, error);
    inner += 2;
    if (line[length - 1] != ')')
        return refuse(line, error);
    return copy_name(node->name, inner, (size_t)(line + length - 1 - inner), line, error);
}

/* Finds the last " (" of a line, where the driver begins. */
static char *find_attributes(char *text)
{
    char *found = NULL;

    for (char *next = strstr(text, " ("); next; next = strstr(next + 1, " ("))
        found = next;
    return found;
}

/* Opens a block, or none for a drive without a medium. Splits the line in place. */
static int read_header(struct block *block, char *line, struct error *error)
{
    char *file = strstr(line, ": "), *attributes, *driver;
    size_t length = strlen(line);
    int r;

    *block = (struct block){.open = false};
    if (!file)
        return refuse(line, error);
    if (strcmp(file, ": [not inserted]") == 0)
        return 0;
    attributes = find_attributes(file);
    if (!attributes || line[length - 1] != ')')
        return refuse(line, error);
    r = read_name(&block->node, line, (size_t)(file - line), error);
    if (r < 0)
        return r;
    driver = attributes + 2;
    r = copy_name(block->node.driver, driver, strcspn(driver, ",)"), line, error);
    if (r < 0)
        return r;
    block->node.read_only = strstr(driver, ", read-only") != NULL;
    *attributes = '\0';
    block->file = file + 2;
    block->open = true;
    return 0;
}

/* "virtual size: 64 MiB (67108864 bytes)"; the first one in a block is the node's own. */
static int read_size(struct block *block, const char *line, struct error *error)
{
    const char *digits = strrchr(line, '(');
    char *end = NULL;

    if (!digits || digits[1] < '0' || digits[1] > '9')
        return refuse(line, error);
    errno = 0;
    block->node.bytes = strtoull(digits + 1, &end, 10);
    if (errno || strcmp(end, " bytes)") != 0)
        return refuse(line, error);
    block->sized = true;
    return 0;
}

/* The block is complete: adds its node. Repeated ones count as well, because each is searched for.
 */
static int close_block(struct block *block, unsigned *count, bool repeated,
                       struct qemu_nodes *nodes, struct error *error)
{
    if (!block->open)
        return 0;
    block->open = false;
    if (!block->sized)
        return error_set(error, -EBADMSG, "info block: no size for \"%s\"", block->node.name);
    if ((*count)++ == QEMU_REPORT_ENTRIES)
        return qemu_report_refuse_size(error);
    if (repeated && qemu_nodes_find(nodes, block->node.name))
        return 0;
    return qemu_nodes_add(nodes, &block->node, block->file, error);
}

static int read_line(struct block *block, char *line, bool first, struct error *error)
{
    const char *text = line + strspn(line, " ");

    if (first && strcmp(line, "Images:") == 0)
        block->images = true;
    else if (first)
        return read_header(block, line, error);
    else if (block->images && !block->sized && strncmp(text, "virtual size: ", 14) == 0)
        return read_size(block, text, error);
    return 0;
}

int hmp_read_blocks(const char *text, bool repeated, struct qemu_nodes *nodes, struct error *error)
{
    cleanup(freep) char *copy = strdup(text);
    struct block block = {.open = false};
    bool first = true; /* after a blank line: a header or "Images:" */
    char *cursor = copy, *line;
    unsigned count = 0;
    int r;

    if (!copy)
        return error_set_errno(error, -ENOMEM, "cannot keep the monitor's reply");
    while ((line = strsep(&cursor, "\n"))) {
        if (!line[0]) {
            first = true;
            continue;
        }
        if (first && strcmp(line, "Images:") != 0) {
            r = close_block(&block, &count, repeated, nodes, error);
            if (r < 0)
                return r;
        }
        r = read_line(&block, line, first, error);
        if (r < 0)
            return r;
        first = false;
    }
    return close_block(&block, &count, repeated, nodes, error);
}

int hmp_encode_truncate(struct buffer *output, const char *node, uint64_t bytes)
{
    if (!qemu_name_is_plain(node))
        return -EINVAL;
    /* qemu-io takes the number for an int64_t, as the kernel does. */
    return buffer_append_format(output, "qemu-io %s \"truncate %" PRIu64 "\"\n", node, bytes);
}
