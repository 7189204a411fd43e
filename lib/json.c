/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - checks a text against RFC 8259, more strictly where readers differ, before cJSON reads
 * it.
 *
 * The gate walks the text by itself, one value after another, and builds nothing but a list of the
 * keys of the objects that are open. cJSON sees the text only after all of it has passed, and then
 * cannot misread it.
 *
 * Keys are unescaped and folded into one arena while an object is open; when it closes, its keys
 * are sorted and neighbours compared, so that an object of n keys costs n log n, however its keys
 * were chosen (a hash could be flooded). Folding is ASCII's, and the two characters beyond that
 * Go's encoding/json folds onto ASCII letters: U+017F (long s) and U+212A (kelvin sign). Every name
 * that crustd reads is ASCII, so no other folding can make two keys name one field.
 *
 * Recursion is bounded by limits.depth, which is at most JSON_MAX_DEPTH.
 */
#include "lib/json.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/text.h"

enum {
    JSON_MAX_DEPTH = 64,
    JSON_NUMBER_CHARS = 63, /* cJSON reads no more of a number */
};

#define LONG_S      UINT32_C(0x017F)
#define KELVIN_SIGN UINT32_C(0x212A)

struct key {
    size_t start; /* in gate.folded */
    size_t length;
    size_t position; /* in the text, for the error */
};

struct gate {
    const char *text;
    size_t length;
    size_t at;
    unsigned depth;
    unsigned depth_limit;
    unsigned values, value_limit;
    struct error *error;
    struct buffer folded; /* the folded keys of all open objects, one after another */
    struct key *keys;     /* likewise, as a stack */
    size_t key_count;
    size_t key_capacity;
};

static int gate_value(struct gate *gate);

static int refuse(struct gate *gate, size_t position, const char *what)
{
    return error_set(gate->error, JSON_WRONG, "%s at byte %zu", what, position);
}

static bool gate_peek(const struct gate *gate, char character)
{
    return gate->at < gate->length && gate->text[gate->at] == character;
}

static bool gate_accept(struct gate *gate, char character)
{
    if (!gate_peek(gate, character))
        return false;
    gate->at++;
    return true;
}

static void gate_space(struct gate *gate)
{
    if (gate->at < gate->length && gate->text[gate->at] > ' ')
        return;
    while (gate_peek(gate, ' ') || gate_peek(gate, '\t') || gate_peek(gate, '\n') ||
           gate_peek(gate, '\r'))
        gate->at++;
}

static uint32_t fold_character(uint32_t character)
{
    if (character >= 'A' && character <= 'Z')
        return character - 'A' + 'a';
    if (character == LONG_S)
        return 's';
    if (character == KELVIN_SIGN)
        return 'k';
    return character;
}

/* Four hexadecimal digits after "\u". */
static int gate_hex(struct gate *gate, uint32_t *ret_unit)
{
    uint32_t unit = 0;

    for (int i = 0; i < 4; i++, gate->at++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *digit = NULL;

        if (gate->at < gate->length && gate->text[gate->at])
            digit = strchr(digits, gate->text[gate->at]);
        if (!digit)
            return refuse(gate, gate->at, "bad \\u escape");
        unit = unit << 4 | ((uint32_t)(digit - digits) & 0xF);
    }
    *ret_unit = unit;
    return 0;
}

/* After "\u": one unit, or two that are a surrogate pair. */
static int gate_unicode_escape(struct gate *gate, size_t position, uint32_t *ret_character)
{
    uint32_t high, low;
    int r = gate_hex(gate, &high);

    if (r < 0)
        return r;
    if (high == 0)
        return refuse(gate, position, "\\u0000");
    if (high < 0xD800 || high > 0xDFFF) {
        *ret_character = high;
        return 0;
    }
    if (high > 0xDBFF || !gate_accept(gate, '\\') || !gate_accept(gate, 'u'))
        return refuse(gate, position, "lone surrogate");
    r = gate_hex(gate, &low);
    if (r < 0)
        return r;
    if (low < 0xDC00 || low > 0xDFFF)
        return refuse(gate, position, "lone surrogate");
    *ret_character = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return 0;
}

/* After the backslash. */
static int gate_escape(struct gate *gate, uint32_t *ret_character)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    size_t position = gate->at - 1;
    const char *letter = NULL;

    if (gate_accept(gate, 'u'))
        return gate_unicode_escape(gate, position, ret_character);
    if (gate->at < gate->length && gate->text[gate->at])
        letter = strchr(letters, gate->text[gate->at]);
    if (!letter)
        return refuse(gate, position, "unknown escape");
    gate->at++;
    *ret_character = (unsigned char)meanings[letter - letters];
    return 0;
}

/* One character of a string, unescaped. Precondition: not at the end. */
static int gate_character(struct gate *gate, uint32_t *ret_character)
{
    size_t step;

    if ((unsigned char)gate->text[gate->at] < 0x20)
        return refuse(gate, gate->at, "control character in a string");
    if (gate_accept(gate, '\\'))
        return gate_escape(gate, ret_character);
    step = text_decode_utf8(gate->text + gate->at, gate->length - gate->at, ret_character);
    if (!step)
        return refuse(gate, gate->at, "invalid UTF-8");
    gate->at += step;
    return 0;
}

static int append_folded(struct buffer *folded, uint32_t character)
{
    char bytes[4];

    return buffer_append(folded, bytes, text_encode_utf8(fold_character(character), bytes));
}

/* Bytes that stand for themselves wherever they are in a string: printable, and none that begins
 * something. Nearly all bytes of a document are looked up here. */
static const bool plain[256] = {
    [' '] = true, ['!'] = true, ['#' ... '\\' - 1] = true, ['\\' + 1 ... 0x7F] = true};

/* All plain bytes from here on at once: nearly every string has no others. */
static int gate_plain(struct gate *gate, struct buffer *folded)
{
    size_t start = gate->at, at = start, folded_start;
    int r;

    while (at < gate->length && plain[(unsigned char)gate->text[at]])
        at++;
    gate->at = at;
    if (!folded || gate->at == start)
        return 0;
    folded_start = folded->length;
    r = buffer_append(folded, gate->text + start, gate->at - start);
    for (size_t i = folded_start; r == 0 && i < folded->length; i++)
        if (folded->data[i] >= 'A' && folded->data[i] <= 'Z')
            folded->data[i] = (char)(folded->data[i] - 'A' + 'a');
    return r;
}

/* A string; a key's characters are kept, folded, in `folded`, which is NULL for a value. */
static int gate_string(struct gate *gate, struct buffer *folded)
{
    size_t start = gate->at;

    if (!gate_accept(gate, '"'))
        return refuse(gate, gate->at, "expected a string");
    while (gate->at < gate->length) {
        uint32_t character;
        int r = gate_plain(gate, folded);

        if (r < 0)
            return r;
        if (gate_accept(gate, '"'))
            return 0;
        if (gate->at == gate->length)
            break;
        r = gate_character(gate, &character);
        if (r == 0 && folded)
            r = append_folded(folded, character);
        if (r < 0)
            return r;
    }
    return refuse(gate, start, "string without an end");
}

static int gate_push_key(struct gate *gate, struct key key)
{
    if (gate->key_count == gate->key_capacity) {
        size_t capacity = gate->key_capacity ? 2 * gate->key_capacity : 16;
        struct key *keys = reallocarray(gate->keys, capacity, sizeof(*keys));

        if (!keys)
            return JSON_NO_MEMORY;
        gate->keys = keys;
        gate->key_capacity = capacity;
    }
    gate->keys[gate->key_count++] = key;
    return 0;
}

/* By text, then by position: of two equal keys the later one is reported. */
static int compare_keys(const void *a, const void *b, void *arena)
{
    const struct key *left = a, *right = b;
    int order = 0;

    if (left->length != right->length)
        return left->length < right->length ? -1 : 1;
    if (left->length)
        order = memcmp((const char *)arena + left->start, (const char *)arena + right->start,
                       left->length);
    if (order == 0)
        order = left->position < right->position ? -1 : 1;
    return order;
}

static bool keys_equal(const struct gate *gate, const struct key *a, const struct key *b)
{
    return a->length == b->length &&
           (a->length == 0 ||
            memcmp(gate->folded.data + a->start, gate->folded.data + b->start, a->length) == 0);
}

/* Closes an object whose keys are those from `first` on. */
static int gate_pop_keys(struct gate *gate, size_t first, size_t arena_length)
{
    size_t count = gate->key_count - first;

    if (count > 1)
        qsort_r(&gate->keys[first], count, sizeof(*gate->keys), compare_keys, gate->folded.data);
    for (size_t i = first + 1; i < gate->key_count; i++)
        if (keys_equal(gate, &gate->keys[i - 1], &gate->keys[i]))
            return refuse(gate, gate->keys[i].position, "key a second time");
    gate->key_count = first;
    gate->folded.length = arena_length;
    return 0;
}

static int gate_member(struct gate *gate)
{
    struct key key = {.start = gate->folded.length, .position = gate->at};
    int r = gate_string(gate, &gate->folded);

    if (r < 0)
        return r;
    key.length = gate->folded.length - key.start;
    r = gate_push_key(gate, key);
    if (r < 0)
        return r;
    gate_space(gate);
    if (!gate_accept(gate, ':'))
        return refuse(gate, gate->at, "expected ':'");
    gate_space(gate);
    return gate_value(gate);
}

/* The part that objects and arrays share, after the opening bracket. */
static int gate_items(struct gate *gate, int (*item)(struct gate *gate), char close)
{
    int r;

    gate_space(gate);
    if (gate_accept(gate, close))
        return 0;
    for (;;) {
        r = item(gate);
        if (r < 0)
            return r;
        gate_space(gate);
        if (gate_accept(gate, close))
            return 0;
        if (!gate_accept(gate, ','))
            return refuse(gate, gate->at, "expected ',' or the closing bracket");
        gate_space(gate);
    }
}

static int gate_nested(struct gate *gate)
{
    size_t first = gate->key_count, arena_length = gate->folded.length;
    bool object = gate->text[gate->at] == '{';
    int r;

    if (gate->depth == gate->depth_limit)
        return refuse(gate, gate->at, "nested too deeply");
    gate->depth++;
    gate->at++;
    r = object ? gate_items(gate, gate_member, '}') : gate_items(gate, gate_value, ']');
    gate->depth--;
    if (r < 0 || !object)
        return r;
    return gate_pop_keys(gate, first, arena_length);
}

static size_t gate_digits(struct gate *gate)
{
    size_t start = gate->at;

    while (gate->at < gate->length && gate->text[gate->at] >= '0' && gate->text[gate->at] <= '9')
        gate->at++;
    return gate->at - start;
}

static int gate_number(struct gate *gate)
{
    size_t start = gate->at;

    (void)gate_accept(gate, '-');
    if (!gate_accept(gate, '0') && !gate_digits(gate))
        return refuse(gate, start, "expected a value");
    if (gate_accept(gate, '.') && !gate_digits(gate))
        return refuse(gate, start, "bad number");
    if (gate_accept(gate, 'e') || gate_accept(gate, 'E')) {
        if (!gate_accept(gate, '+'))
            (void)gate_accept(gate, '-');
        if (!gate_digits(gate))
            return refuse(gate, start, "bad number");
    }
    if (gate->at - start > JSON_NUMBER_CHARS)
        return refuse(gate, start, "number of too many digits");
    return 0;
}

static bool gate_literal(struct gate *gate, const char *literal)
{
    size_t length = strlen(literal);

    if (gate->length - gate->at < length || memcmp(gate->text + gate->at, literal, length) != 0)
        return false;
    gate->at += length;
    return true;
}

static int gate_value(struct gate *gate)
{
    if (gate->values++ == gate->value_limit)
        return refuse(gate, gate->at, "more values than are read");
    if (gate_peek(gate, '{') || gate_peek(gate, '['))
        return gate_nested(gate);
    if (gate_peek(gate, '"'))
        return gate_string(gate, NULL);
    if (gate_literal(gate, "true") || gate_literal(gate, "false") || gate_literal(gate, "null"))
        return 0;
    return gate_number(gate);
}

static int gate_text(struct gate *gate)
{
    int r;

    gate_space(gate);
    r = gate_value(gate);
    if (r < 0)
        return r;
    gate_space(gate);
    return gate->at < gate->length ? refuse(gate, gate->at, "text after the value") : 0;
}

static int gate_check(const char *text, size_t length, struct json_limits limits,
                      struct error *error)
{
    struct gate gate = {
        .text = text,
        .length = length,
        .depth_limit = limits.depth < JSON_MAX_DEPTH ? limits.depth : JSON_MAX_DEPTH,
        .value_limit = limits.values ? limits.values : UINT_MAX,
        .error = error,
        .folded = BUFFER_INIT(length + 1), /* unescaping and folding never lengthen */
    };
    int r = gate_text(&gate);

    buffer_done(&gate.folded);
    free(gate.keys);
    if (r == JSON_NO_MEMORY)
        return error_set(error, r, "out of memory");
    return r;
}

int json_parse(const char *text, size_t length, struct json_limits limits, cJSON **ret_value,
               struct error *error)
{
    cJSON *value;
    int r;

    if (length > limits.bytes)
        return error_set(error, JSON_TOO_LONG, "%zu bytes of JSON, more than %zu", length,
                         limits.bytes);
    r = gate_check(text, length, limits, error);
    if (r < 0)
        return r;
    value = cJSON_ParseWithLength(text, length);
    if (!value)
        return error_set(error, JSON_NO_MEMORY, "out of memory");
    *ret_value = value;
    return 0;
}

/* Reads one character of well-formed UTF-8, folded; 0 at the end. */
static uint32_t next_folded(const char **cursor)
{
    uint32_t character = (unsigned char)**cursor;

    if (character < 0x80)
        *cursor += character != 0;
    else
        *cursor += text_decode_utf8(*cursor, strnlen(*cursor, 4), &character);
    return fold_character(character);
}

static bool names_equal_folded(const char *a, const char *b)
{
    uint32_t character;

    do {
        character = next_folded(&a);
        if (character != next_folded(&b))
            return false;
    } while (character);
    return true;
}

/* Nearly all names are told apart by a letter of ASCII, or are the same bytes. */
static bool names_equal(const char *a, const char *b)
{
    size_t same = 0;
    unsigned char left, right;

    while (a[same] && a[same] == b[same])
        same++;
    left = (unsigned char)a[same];
    right = (unsigned char)b[same];
    if (left == right)
        return true;
    if (left < 0x80 && right < 0x80 && fold_character(left) != fold_character(right))
        return false;
    return names_equal_folded(a, b);
}

const cJSON *json_member(const cJSON *object, const char *name)
{
    const cJSON *member;

    if (!cJSON_IsObject(object))
        return NULL;
    cJSON_ArrayForEach(member, object)
    {
        if (names_equal(member->string, name))
            return member;
    }
    return NULL;
}

const char *json_string(const cJSON *object, const char *name)
{
    const cJSON *member = json_member(object, name);

    return cJSON_IsString(member) ? member->valuestring : NULL;
}

const char *json_text(const cJSON *object, const char *name)
{
    const char *text = json_string(object, name);

    return text ? text : "";
}

enum json_number json_number(const cJSON *object, const char *name, uint64_t *ret_number)
{
    const cJSON *member = json_member(object, name);
    const double beyond = (double)(UINT64_C(1) << 53);

    if (!member)
        return JSON_NUMBER_ABSENT;
    if (!cJSON_IsNumber(member) || !(member->valuedouble >= 0) || !(member->valuedouble < beyond))
        return JSON_NUMBER_WRONG;
    if ((double)(uint64_t)member->valuedouble < member->valuedouble)
        return JSON_NUMBER_WRONG;
    *ret_number = (uint64_t)member->valuedouble;
    return JSON_NUMBER;
}

bool json_is_text(const char *text, size_t length)
{
    return !memchr(text, '\0', length) && text_is_utf8(text, length);
}
