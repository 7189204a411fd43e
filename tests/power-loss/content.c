/* SPDX-License-Identifier: Apache-2.0 */
/* content.c - see content.h. */
#include "tests/power-loss/content.h"

void content_resize(struct content *content, size_t length)
{
    if (length > content->room) {
        size_t room = length + length / 2 + 4096;

        content->bytes = realloc(content->bytes, room);
        must(content->bytes, "memory");
        content->room = room;
    }
    if (length > content->length)
        memset(content->bytes + content->length, 0, length - content->length);
    content->length = length;
}

void content_write(struct content *content, size_t offset, const void *bytes, size_t length)
{
    if (length == 0)
        return;
    if (offset + length > content->length)
        content_resize(content, offset + length);
    memcpy(content->bytes + offset, bytes, length);
}

void content_apply(struct content *content, const struct operation *operation)
{
    if (operation->kind == TRUNCATE)
        content_resize(content, operation->length);
    else
        content_write(content, operation->offset, operation->bytes, operation->length);
}

static struct name *find_name(struct names *names, const char *text)
{
    for (unsigned i = 0; i < names->count; i++)
        if (strcmp(names->name[i].text, text) == 0)
            return &names->name[i];
    return NULL;
}

void names_set(struct names *names, const char *text, unsigned file)
{
    struct name *name = find_name(names, text);

    if (!name) {
        must(names->count < FILES, "too many names");
        name = &names->name[names->count++];
        (void)snprintf(name->text, sizeof(name->text), "%s", text);
    }
    name->file = file;
}

static void drop_name(struct names *names, const char *text)
{
    struct name *name = find_name(names, text);

    if (name)
        *name = names->name[--names->count];
}

void names_apply(struct names *names, const struct operation *operation)
{
    const struct name *name;

    switch (operation->kind) {
    case LINK:
        names_set(names, operation->name, operation->file);
        break;
    case UNLINK:
        drop_name(names, operation->name);
        break;
    case RENAME:
        name = find_name(names, operation->name);
        if (name)
            names_set(names, operation->to, name->file);
        drop_name(names, operation->name);
        break;
    case WRITE:
    case TRUNCATE:
    case FLUSH:
    case FLUSH_NAMES:
    default:
        break;
    }
}
