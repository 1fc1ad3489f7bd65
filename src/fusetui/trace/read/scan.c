/* The events of a trace straight to columns, without an object for each.

Accepts a part of JSON only: what this file does not know well gives None, and then Python decodes the
same bytes (chunks.py), so that no answer depends on whether this was compiled. Nothing is read beyond
the end of the buffer, nothing is written to it, and no recursion depends on it.

Only the stable interface of Python 3.11 is used: one build serves all later versions. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define DEEPEST 64             /* levels of brackets in an event */
#define LONGEST_DIGITS 18      /* of an integer: it fits into 64 bits */
#define LONGEST_WHOLE 16       /* digits of microseconds before the point */
#define LIMIT (INT64_C(1) << 61) /* ns: LIMIT_NS of times.py */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LITTLE_ENDIAN_WORDS 1
#define lowest_bit(word) __builtin_ctzll(word)
#else
#define LITTLE_ENDIAN_WORDS 0
#endif
#define WORD(byte) (UINT64_C(0x0101010101010101) * (byte))

typedef struct {
    const char *at, *end;
    int wide; /* there are bytes that are not ASCII */
} Text;

typedef struct {
    const char *at;
    Py_ssize_t length;
} Span;

/* ---- JSON ---- */

static inline void blanks(Text *text) {
    while (text->at < text->end
           && (*text->at == ' ' || *text->at == '\n' || *text->at == '\t' || *text->at == '\r'))
        text->at++;
}

static inline int next(Text *text, char byte) {
    if (text->at >= text->end || *text->at != byte) return 0;
    text->at++;
    return 1;
}

static int is_hex(char digit) {
    return (digit >= '0' && digit <= '9') || ((digit | 32) >= 'a' && (digit | 32) <= 'f');
}

static int escape(Text *text) { /* behind a backslash; a half of a surrogate is not known here */
    if (text->at >= text->end) return 0;
    char kind = *text->at++;
    if (kind != 'u') return kind && strchr("\"\\/bfnrt", kind) != NULL;
    if (text->end - text->at > 1 && (text->at[0] | 32) == 'd' && text->at[1] > '7') return 0;
    for (int digit = 0; digit < 4; digit++, text->at++)
        if (text->at >= text->end || !is_hex(*text->at)) return 0;
    return 1;
}

/* Behind the opening quote, up to behind the closing one. Eight bytes at once while none of them is a
quote, a backslash, a control character or not ASCII. */
static inline int string(Text *text, Span *found, int *escaped) {
    const char *first = text->at;
    *escaped = 0;
    for (;;) {
#if LITTLE_ENDIAN_WORDS
        while (text->end - text->at >= 8) {
            uint64_t word, quote, slash, special;
            memcpy(&word, text->at, 8);
            quote = word ^ WORD('"');
            slash = word ^ WORD('\\');
            special = ((quote - WORD(1)) & ~quote) | ((slash - WORD(1)) & ~slash);
            special = (special | (word - WORD(0x20)) | word) & WORD(0x80);
            if (special) { /* the first such byte is the lowest: borrows only reach higher ones */
                text->at += lowest_bit(special) >> 3;
                break;
            }
            text->at += 8;
        }
#endif
        if (text->at >= text->end) return 0;
        unsigned char byte = (unsigned char)*text->at++;
        if (byte == '"') {
            found->at = first;
            found->length = text->at - 1 - first;
            return 1;
        }
        if (byte == '\\') {
            *escaped = 1;
            if (!escape(text)) return 0;
        } else if (byte < 0x20) {
            return 0;
        } else if (byte >= 0x80) {
            text->wide = 1;
        }
    }
}

static inline int is_digit(const Text *text) {
    return text->at < text->end && *text->at >= '0' && *text->at <= '9';
}

static inline int digits(Text *text) { /* at least one */
    if (!is_digit(text)) return 0;
    while (is_digit(text)) text->at++;
    return 1;
}

static int number(Text *text) {
    next(text, '-');
    if (!next(text, '0') && !digits(text)) return 0;
    if (next(text, '.') && !digits(text)) return 0;
    if (text->at < text->end && (*text->at == 'e' || *text->at == 'E')) {
        text->at++;
        if (!next(text, '+')) next(text, '-');
        return digits(text);
    }
    return 1;
}

static int literal(Text *text, const char *word) {
    Py_ssize_t length = (Py_ssize_t)strlen(word);
    if (text->end - text->at < length || memcmp(text->at, word, (size_t)length)) return 0;
    text->at += length;
    return 1;
}

static int scalar(Text *text) {
    Span ignored;
    int escaped;
    if (text->at >= text->end) return 0;
    switch (*text->at) {
    case '"': text->at++; return string(text, &ignored, &escaped);
    case 't': return literal(text, "true");
    case 'f': return literal(text, "false");
    case 'n': return literal(text, "null");
    default: return number(text);
    }
}

static int key(Text *text, Span *found, int *escaped) { /* up to the value */
    if (!next(text, '"') || !string(text, found, escaped)) return 0;
    blanks(text);
    if (!next(text, ':')) return 0;
    blanks(text);
    return 1;
}

/* Any value, checked and passed over. */
static int value(Text *text) {
    char closing[DEEPEST];
    int depth = 0, escaped;
    Span ignored;
    for (;;) {
        int opened = 0;
        if (text->at >= text->end) return 0;
        if (*text->at == '{' || *text->at == '[') {
            if (depth == DEEPEST) return 0;
            closing[depth++] = *text->at++ == '{' ? '}' : ']';
            blanks(text);
            opened = 1;
        } else if (!scalar(text)) {
            return 0;
        }
        for (;;) { /* what may follow a value, or an opening bracket */
            if (!depth) return 1;
            if (!opened) blanks(text);
            if (next(text, closing[depth - 1])) {
                depth--;
                opened = 0;
                continue;
            }
            if (!opened) {
                if (!next(text, ',')) return 0;
                blanks(text);
            }
            if (closing[depth - 1] == '}' && !key(text, &ignored, &escaped)) return 0;
            break;
        }
    }
}

/* ---- values that columns hold; 0 for what Python has to look at ---- */

static int integer(Text *text, int64_t *found) {
    int negative = next(text, '-');
    const char *first = text->at;
    int64_t sum = 0;
    while (is_digit(text)) {
        if (text->at - first == LONGEST_DIGITS) return 0;
        sum = sum * 10 + (*text->at++ - '0');
    }
    if (text->at == first || (*first == '0' && text->at - first > 1)) return 0;
    if (text->at < text->end && (*text->at == '.' || *text->at == 'e' || *text->at == 'E')) return 0;
    *found = negative ? -sum : sum;
    return 1;
}

/* Microseconds -> nanoseconds, half to even, from the digits. */
static int time_of(Text *text, int64_t *found) {
    const char *first = text->at;
    int64_t sum = 0;
    while (is_digit(text)) {
        if (text->at - first == LONGEST_WHOLE) return 0;
        sum = sum * 10 + (*text->at++ - '0');
    }
    if (text->at == first || (*first == '0' && text->at - first > 1)) return 0;
    if (sum >= LIMIT / 1000) return 0;
    sum *= 1000;
    if (next(text, '.')) {
        int64_t unit = 100, above = 0; /* the half of a nanosecond, and what is beyond it */
        int half = 0;
        if (!is_digit(text)) return 0;
        for (int place = 0; is_digit(text); place++, text->at++) {
            int digit = *text->at - '0';
            if (place < 3) {
                sum += digit * unit;
                unit /= 10;
            } else if (place == 3) {
                half = digit >= 5;
                above = digit > 5;
            } else {
                above |= digit != 0;
            }
        }
        sum += half && (above || (sum & 1));
    }
    *found = sum;
    return text->at >= text->end || (*text->at != 'e' && *text->at != 'E');
}

/* A string without escapes, up to behind it. */
static int plain(Text *text, Span *found) {
    int escaped;
    return next(text, '"') && string(text, found, &escaped) && !escaped;
}

/* ---- tables of distinct texts ---- */

typedef struct {
    Span *spans;
    uint64_t *hashes;
    int32_t *slots; /* into spans, -1 where free; a power of two */
    Py_ssize_t count, room, size;
} Table;

static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

static uint64_t seed; /* another one in each process, so that no file can be made to collide */

static uint64_t hash_of(Span text) {
    uint64_t word, hash = seed ^ (uint64_t)text.length;
    for (; text.length >= 8; text.at += 8, text.length -= 8) {
        memcpy(&word, text.at, 8);
        hash = mixed(hash, word);
    }
    word = 0;
    memcpy(&word, text.at, (size_t)text.length);
    hash = mixed(hash, word);
    hash = (hash ^ (hash >> 33)) * UINT64_C(0xFF51AFD7ED558CCD);
    hash = (hash ^ (hash >> 33)) * UINT64_C(0xC4CEB9FE1A85EC53);
    return hash ^ (hash >> 33);
}

/* From libc: PyMem_Realloc needs the GIL, which is not held here, and the stable interface has no
PyMem_RawRealloc before Python 3.13. */
static int grown(void **memory, Py_ssize_t count, size_t size) {
    void *more = realloc(*memory, (size_t)count * size);
    if (!more) return 0;
    *memory = more;
    return 1;
}

static int rehashed(Table *table) {
    Py_ssize_t size = table->size ? table->size * 2 : 256;
    if (!grown((void **)&table->slots, size, sizeof *table->slots)) return 0;
    table->size = size;
    memset(table->slots, -1, (size_t)size * sizeof *table->slots);
    for (Py_ssize_t n = 0; n < table->count; n++) {
        uint64_t slot = table->hashes[n] & (uint64_t)(size - 1);
        while (table->slots[slot] >= 0) slot = (slot + 1) & (uint64_t)(size - 1);
        table->slots[slot] = (int32_t)n;
    }
    return 1;
}

/* The number of a text; -1 without memory. */
static int32_t number_of(Table *table, Span text) {
    if (table->count * 2 >= table->size && !rehashed(table)) return -1;
    uint64_t hash = hash_of(text), mask = (uint64_t)(table->size - 1), slot;
    for (slot = hash & mask; table->slots[slot] >= 0; slot = (slot + 1) & mask) {
        int32_t n = table->slots[slot];
        if (table->hashes[n] == hash && table->spans[n].length == text.length
            && !memcmp(table->spans[n].at, text.at, (size_t)text.length))
            return n;
    }
    if (table->count == table->room) {
        Py_ssize_t room = table->room ? table->room * 2 : 128;
        if (!grown((void **)&table->spans, room, sizeof *table->spans)) return -1;
        if (!grown((void **)&table->hashes, room, sizeof *table->hashes)) return -1;
        table->room = room;
    }
    table->spans[table->count] = text;
    table->hashes[table->count] = hash;
    table->slots[slot] = (int32_t)table->count;
    return (int32_t)table->count++;
}

/* Likewise of a text that does not stay: the table keeps a copy. */
static int32_t kept_number(Table *table, Span text) {
    Py_ssize_t count = table->count;
    int32_t number = number_of(table, text);
    if (number == count) {
        char *copy = malloc((size_t)text.length);
        table->spans[number].at = copy;
        if (!copy) return -1;
        memcpy(copy, text.at, (size_t)text.length);
    }
    return number;
}

static void freed(Table *table) {
    free(table->spans);
    free(table->hashes);
    free(table->slots);
}

static void freed_with_copies(Table *table) {
    for (Py_ssize_t n = 0; n < table->count; n++) free((void *)table->spans[n].at);
    freed(table);
}

/* ---- events ---- */

enum { PH = 1, CAT = 2, NAME = 4, PID = 8, TID = 16, TS = 32, DUR = 64, ARGS = 128 };
enum { CORRELATION = 1, EXTERNAL = 2, EXTERNAL_2021 = 4, DEVICE = 8, ORIGINAL = 16 };

typedef struct {
    unsigned char phase; /* ASCII, not 0 */
    Span name, category, pid, tid, whole;
    Span original; /* the stream of an event that was moved to another lane, of no length: absent */
    int64_t start, dur, correlation, external, device; /* -1: absent */
    int odd_device;
} Event;

static int named(Span key, const char *name, Py_ssize_t length) {
    return key.length == length && !memcmp(key.at, name, (size_t)length);
}
#define NAMED(key, name) named(key, name, sizeof name - 1)

static int arg_of(Span key) {
    switch (key.length) {
    case 6: return NAMED(key, "device") ? DEVICE : 0;
    case 11:
        if (NAMED(key, "correlation")) return CORRELATION;
        if (NAMED(key, "External id")) return EXTERNAL;
        return NAMED(key, "external id") ? EXTERNAL_2021 : 0;
    case 15: return NAMED(key, "original_stream") ? ORIGINAL : 0;
    default: return 0;
    }
}

/* Other args whose values Python decodes: it refuses numbers out of range, also within a list. */
static int is_decoded(Span key) {
    return NAMED(key, "name") || NAMED(key, "labels") || NAMED(key, "sort_index");
}

/* A value that it decodes for certain: an integer that is not long, a string, true, false or null. */
static int plainly(Text *text) {
    int64_t ignored;
    if (text->at >= text->end || *text->at == '{' || *text->at == '[') return 0;
    return *text->at == '-' || is_digit(text) ? integer(text, &ignored) : scalar(text);
}

static int args(Text *text, Event *event) {
    int seen = 0, escaped;
    Span name;
    if (!next(text, '{')) return 0;
    blanks(text);
    if (next(text, '}')) return 1;
    do {
        int64_t found;
        blanks(text);
        if (!key(text, &name, &escaped) || escaped) return 0;
        int arg = arg_of(name);
        if (seen & arg) return 0;
        seen |= arg;
        if (arg == DEVICE) {
            const char *first = text->at;
            event->odd_device = !integer(text, &found);
            if (event->odd_device) {
                text->at = first;
                if (!plainly(text)) return 0;
            } else {
                event->device = found >= 0 && found < (INT64_C(1) << 31) ? found : -1;
            }
        } else if (arg == ORIGINAL) {
            event->original.at = text->at;
            if (!integer(text, &found) || found < 0) return 0;
            event->original.length = text->at - event->original.at;
        } else if (arg) {
            if (!integer(text, &found)) return 0;
            if (arg == CORRELATION) event->correlation = found;
            else if (found > event->external) event->external = found;
        } else if (!(is_decoded(name) ? plainly(text) : value(text))) {
            return 0;
        }
        blanks(text);
    } while (next(text, ','));
    return next(text, '}');
}

static int field_of(Span key) {
    switch (key.length) {
    case 2: return NAMED(key, "ph") ? PH : NAMED(key, "ts") ? TS : 0;
    case 3:
        if (NAMED(key, "cat")) return CAT;
        if (NAMED(key, "pid")) return PID;
        if (NAMED(key, "tid")) return TID;
        return NAMED(key, "dur") ? DUR : 0;
    case 4: return NAMED(key, "name") ? NAME : NAMED(key, "args") ? ARGS : 0;
    default: return 0;
    }
}

/* An id as its text: an integer, or a string with its quotes. */
static int identity(Text *text, Span *found) {
    const char *first = text->at;
    int64_t ignored;
    int escaped;
    if (next(text, '"') ? !string(text, found, &escaped) : !integer(text, &ignored)) return 0;
    found->at = first;
    found->length = text->at - first;
    return 1;
}

static int field(Text *text, Event *event, int which) {
    Span phase;
    int escaped;
    switch (which) {
    case PH:
        if (!plain(text, &phase) || phase.length != 1) return 0;
        event->phase = (unsigned char)*phase.at;
        return event->phase > 0 && event->phase < 128;
    case CAT: return plain(text, &event->category);
    case NAME: return next(text, '"') && string(text, &event->name, &escaped);
    case PID: return identity(text, &event->pid);
    case TID: return identity(text, &event->tid);
    case TS: return time_of(text, &event->start);
    case DUR: return time_of(text, &event->dur);
    case ARGS: return args(text, event);
    default: return value(text);
    }
}

static int event_at(Text *text, Event *event) {
    int seen = 0, escaped;
    Span name;
    *event = (Event){.name = {"", 0}, .category = {"", 0}, .pid = {"null", 4}, .tid = {"null", 4},
                     .original = {"", 0}, .correlation = -1, .external = -1, .device = -1};
    event->whole.at = text->at;
    if (!next(text, '{')) return 0;
    do {
        blanks(text);
        if (!key(text, &name, &escaped) || escaped) return 0;
        int which = field_of(name);
        if (seen & which || !field(text, event, which)) return 0;
        seen |= which;
        blanks(text);
    } while (next(text, ','));
    if (!next(text, '}') || !(seen & PH)) return 0;
    event->whole.length = text->at - event->whole.at;
    return 1;
}

/* ---- columns ---- */

enum { START, DURATION, CORRELATIONS, EXTERNALS, ORDER, WIDE };   /* int64 */
enum { NAMES, CATEGORIES, LANES, NARROW };                        /* int32 */

typedef struct {
    int32_t pid, tid; /* numbers of their texts */
    int64_t device;
} Lane;

typedef struct {
    int64_t *wide[WIDE];
    int32_t *narrow[NARROW];
    Py_ssize_t rows, room;
    int32_t *said; /* the labels (ph M) in their order, by the number of their text */
    Py_ssize_t saying, said_room;
    Table names, categories, ids, lanes, labels;
    char *on_gpu; /* by category */
    int64_t phases[128];
    int64_t low, high; /* ns, of what is no slice */
    Py_ssize_t events;
    PyObject *is_on_gpu;     /* the function that says whether events of a category are on a stream */
    PyThreadState *released; /* of the thread that scans, which holds no GIL meanwhile */
} Columns;

enum { FAILED = -1, UNKNOWN = 0, DONE = 1 };

static int32_t lane_of(Columns *columns, const Event *event, int on_gpu) {
    Lane lane;
    memset(&lane, 0, sizeof lane);
    lane.pid = number_of(&columns->ids, event->pid);
    lane.tid = number_of(&columns->ids, on_gpu && event->original.length ? event->original : event->tid);
    lane.device = on_gpu ? event->device : -1;
    if (lane.pid < 0 || lane.tid < 0) return -1;
    return kept_number(&columns->lanes, (Span){(char *)&lane, sizeof lane});
}

/* Whether events of this category are on a stream of a GPU: Python is asked once for each category. */
static int is_on_gpu(Columns *columns, int32_t category) {
    Span name = columns->categories.spans[category];
    if (!grown((void **)&columns->on_gpu, columns->categories.count, 1)) return FAILED;
    PyEval_RestoreThread(columns->released);
    PyObject *answer = PyObject_CallFunction(columns->is_on_gpu, "y#", name.at, name.length);
    int is = answer ? PyObject_IsTrue(answer) : FAILED;
    Py_XDECREF(answer);
    columns->released = PyEval_SaveThread();
    columns->on_gpu[category] = (char)is;
    return is;
}

static int room_for(Columns *columns) {
    if (columns->rows < columns->room) return 1;
    Py_ssize_t room = columns->room ? columns->room * 2 : 4096;
    for (int n = 0; n < WIDE; n++)
        if (!grown((void **)&columns->wide[n], room, sizeof(int64_t))) return 0;
    for (int n = 0; n < NARROW; n++)
        if (!grown((void **)&columns->narrow[n], room, sizeof(int32_t))) return 0;
    columns->room = room;
    return 1;
}

static int slice(Columns *columns, const Event *event) {
    Py_ssize_t row = columns->rows, known = columns->categories.count;
    if (event->start + event->dur > LIMIT) return UNKNOWN;
    if (!room_for(columns)) return FAILED;
    int32_t category = number_of(&columns->categories, event->category);
    int32_t name = number_of(&columns->names, event->name);
    if (category < 0 || name < 0) return FAILED;
    int on_gpu = category == known ? is_on_gpu(columns, category) : columns->on_gpu[category];
    if (on_gpu < 0) return FAILED;
    if (on_gpu && event->odd_device) return UNKNOWN;
    int32_t lane = lane_of(columns, event, on_gpu);
    if (lane < 0) return FAILED;
    columns->narrow[NAMES][row] = name;
    columns->narrow[CATEGORIES][row] = category;
    columns->narrow[LANES][row] = lane;
    columns->wide[START][row] = event->start;
    columns->wide[DURATION][row] = event->dur;
    columns->wide[CORRELATIONS][row] = event->correlation;
    columns->wide[EXTERNALS][row] = event->external;
    columns->wide[ORDER][row] = columns->events;
    columns->rows++;
    return DONE;
}

static int label(Columns *columns, const Event *event) {
    if (columns->saying == columns->said_room) {
        Py_ssize_t room = columns->said_room ? columns->said_room * 2 : 1024;
        if (!grown((void **)&columns->said, room, sizeof(int32_t))) return FAILED;
        columns->said_room = room;
    }
    int32_t number = number_of(&columns->labels, event->whole);
    if (number < 0) return FAILED;
    columns->said[columns->saying++] = number;
    return DONE;
}

/* torch's Python exporter writes instants as slices that last until the next one (INSTANT). */
static const char INSTANT[] = "cpu_instant_event";

static int add(Columns *columns, Event *event) {
    int done = DONE;
    if (event->phase == 'X' && NAMED(event->category, INSTANT)) event->phase = 'i';
    if (event->phase == 'X') {
        done = slice(columns, event);
    } else if (strchr("BEbeSF", event->phase)) { /* their ids are looked at by Python */
        return UNKNOWN;
    } else {
        if (event->start < columns->low) columns->low = event->start;
        if (event->start > columns->high) columns->high = event->start;
        if (event->phase == 'M') done = label(columns, event);
    }
    columns->phases[event->phase]++;
    columns->events++;
    return done;
}

static int all(Text *text, Columns *columns) {
    Event event;
    do {
        blanks(text);
        if (!event_at(text, &event)) return UNKNOWN;
        int done = add(columns, &event);
        if (done != DONE) return done;
        blanks(text);
    } while (next(text, ','));
    return text->at == text->end ? DONE : UNKNOWN;
}

/* ---- for Python ---- */

static PyObject *texts(const Table *table) {
    PyObject *list = PyList_New(table->count);
    for (Py_ssize_t n = 0; list && n < table->count; n++) {
        PyObject *text = PyBytes_FromStringAndSize(table->spans[n].at, table->spans[n].length);
        if (!text) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, n, text);
        }
    }
    return list;
}

static PyObject *bytes_of(const void *memory, Py_ssize_t count, size_t size) {
    return PyBytes_FromStringAndSize(memory ? memory : "", count * (Py_ssize_t)size);
}

static PyObject *lanes_of(const Columns *columns) {
    PyObject *list = PyList_New(columns->lanes.count);
    for (Py_ssize_t n = 0; list && n < columns->lanes.count; n++) {
        const Lane *lane = (const Lane *)columns->lanes.spans[n].at;
        PyObject *item = Py_BuildValue("(iiL)", (int)lane->pid, (int)lane->tid,
                                       (long long)lane->device);
        if (!item) {
            Py_CLEAR(list);
        } else {
            PyList_SetItem(list, n, item);
        }
    }
    return list;
}

static PyObject *phases_of(const Columns *columns) {
    PyObject *counts = PyDict_New();
    for (int phase = 0; counts && phase < 128; phase++) {
        if (!columns->phases[phase]) continue;
        char name[2] = {(char)phase, 0};
        PyObject *count = PyLong_FromLongLong(columns->phases[phase]);
        if (!count || PyDict_SetItemString(counts, name, count) < 0) Py_CLEAR(counts);
        Py_XDECREF(count);
    }
    return counts;
}

static PyObject *answer(const Columns *columns) {
    Py_ssize_t rows = columns->rows;
    PyObject *wide[WIDE], *narrow[NARROW];
    for (int n = 0; n < WIDE; n++) wide[n] = bytes_of(columns->wide[n], rows, sizeof(int64_t));
    for (int n = 0; n < NARROW; n++) narrow[n] = bytes_of(columns->narrow[n], rows, sizeof(int32_t));
    /* N gives up a reference, and a NULL among them fails the whole */
    return Py_BuildValue(
        "(N(NNNNN)(NNN)NNNNNN(LL))", phases_of(columns), wide[0], wide[1], wide[2], wide[3], wide[4],
        narrow[0], narrow[1], narrow[2], texts(&columns->names), texts(&columns->categories),
        texts(&columns->ids), lanes_of(columns), texts(&columns->labels),
        bytes_of(columns->said, columns->saying, sizeof(int32_t)), (long long)columns->low,
        (long long)columns->high);
}

static void emptied(Columns *columns) {
    for (int n = 0; n < WIDE; n++) free(columns->wide[n]);
    for (int n = 0; n < NARROW; n++) free(columns->narrow[n]);
    freed(&columns->names);
    freed(&columns->categories);
    freed(&columns->ids);
    freed_with_copies(&columns->lanes);
    freed(&columns->labels);
    free(columns->said);
    free(columns->on_gpu);
}

/* Whether the text is UTF-8. */
static int is_unicode(const Text *text, const Py_buffer *buffer) {
    PyObject *decoded = text->wide ? PyUnicode_DecodeUTF8(buffer->buf, buffer->len, "strict") : NULL;
    int is = !text->wide || decoded;
    Py_XDECREF(decoded);
    if (!is) PyErr_Clear();
    return is;
}

static PyObject *events(PyObject *module, PyObject *arguments) {
    Py_buffer buffer;
    PyObject *found = NULL;
    Columns columns;
    (void)module;
    memset(&columns, 0, sizeof columns);
    columns.low = INT64_MAX;
    columns.high = INT64_MIN;
    if (!PyArg_ParseTuple(arguments, "y*O", &buffer, &columns.is_on_gpu)) return NULL;
    Text text = {buffer.buf, (const char *)buffer.buf + buffer.len, 0};
    int done = UNKNOWN;
    if (buffer.len < INT32_MAX) {
        columns.released = PyEval_SaveThread();
        done = all(&text, &columns);
        PyEval_RestoreThread(columns.released);
    }
    if (done == DONE && !is_unicode(&text, &buffer)) done = UNKNOWN;
    if (done == DONE) found = answer(&columns);
    else if (done == UNKNOWN) found = Py_NewRef(Py_None);
    else if (!PyErr_Occurred()) PyErr_NoMemory();
    emptied(&columns);
    PyBuffer_Release(&buffer);
    return found;
}

/* ---- some args of some events ---- */

enum { MOST_ARGS = 32 }; /* that may be asked for at once */

typedef struct {
    Span names[MOST_ARGS], values[MOST_ARGS]; /* a value: absent if its length is 0 */
    Py_ssize_t count, named; /* asked for, and with those of memory events behind them */
    uint64_t lengths;        /* bit n % 64: some name has n bytes */
    Span name, phase, category;
    int64_t sequence, thread; /* -1: absent */
    char *joined;             /* the values with a 0 between them */
    Py_ssize_t room;
} Asked;

static int numbered_arg(Text *text, Span name, Asked *asked) {
    int64_t *place = NAMED(name, "Sequence number") ? &asked->sequence
                   : NAMED(name, "Fwd thread id")   ? &asked->thread : NULL;
    if (!place) return value(text);
    return *place == -1 && integer(text, place) && *place >= 0;
}

static int asked_args(Text *text, Asked *asked, int numbered) {
    int escaped;
    Span name;
    if (!next(text, '{')) return 0;
    blanks(text);
    if (next(text, '}')) return 1;
    do {
        blanks(text);
        if (!key(text, &name, &escaped) || escaped) return 0;
        const char *first = text->at;
        if (!(numbered ? numbered_arg(text, name, asked) : value(text))) return 0;
        for (Py_ssize_t n = 0; asked->lengths >> (name.length & 63) & 1 && n < asked->named; n++) {
            if (!named(name, asked->names[n].at, asked->names[n].length)) continue;
            if (asked->values[n].length) return 0; /* given twice */
            asked->values[n] = (Span){first, text->at - first};
        }
        blanks(text);
    } while (next(text, ','));
    return next(text, '}');
}

enum { LONGEST_ESCAPED = 48 }; /* bytes: so a name of 8 characters may be written */

/* What tells a memory event from others. */
static int kind_of(Text *text, Span key, Asked *asked) {
    int escaped;
    int64_t ignored;
    if (NAMED(key, "ph")) return plain(text, &asked->phase);
    if (NAMED(key, "cat")) return plain(text, &asked->category);
    if (NAMED(key, "ts")) return time_of(text, &ignored);
    if (!NAMED(key, "name")) return value(text);
    return next(text, '"') && string(text, &asked->name, &escaped)
           && !(escaped && asked->name.length <= LONGEST_ESCAPED);
}

static int asked_event(Text *text, Asked *asked, int numbered) {
    int seen = 0, escaped;
    Span name;
    for (Py_ssize_t n = 0; n < asked->named; n++) asked->values[n].length = 0;
    asked->name.length = asked->phase.length = asked->category.length = 0;
    asked->sequence = asked->thread = -1;
    if (!next(text, '{')) return 0;
    do {
        blanks(text);
        if (!key(text, &name, &escaped) || escaped) return 0;
        if (NAMED(name, "args")) {
            if (seen++ || !asked_args(text, asked, numbered)) return 0;
        } else if (!(asked->named > asked->count ? kind_of(text, name, asked) : value(text))) {
            return 0;
        }
        blanks(text);
    } while (next(text, ','));
    return next(text, '}');
}

/* The number of the values among distinct ones, whose texts are copied; -1 for none, -2 without memory. */
static int32_t number_of_values(Asked *asked, Table *table) {
    Py_ssize_t length = asked->count - 1, at = 0;
    for (Py_ssize_t n = 0; n < asked->count; n++) length += asked->values[n].length;
    if (length == asked->count - 1) return -1;
    if (length > asked->room) {
        if (!grown((void **)&asked->joined, length * 2, 1)) return -2;
        asked->room = length * 2;
    }
    for (Py_ssize_t n = 0; n < asked->count; n++) {
        if (n) asked->joined[at++] = 0;
        if (!asked->values[n].length) continue;
        memcpy(asked->joined + at, asked->values[n].at, (size_t)asked->values[n].length);
        at += asked->values[n].length;
    }
    int32_t number = kept_number(table, (Span){asked->joined, length});
    return number < 0 ? -2 : number;
}

typedef struct {
    const int64_t *places; /* of the events asked for, ascending */
    Py_ssize_t count;
    int32_t *numbers;    /* for each of them */
    int64_t *sequences;  /* place, sequence number, thread of each event that has one */
    Py_ssize_t found, room;
    double *totals; /* of each memory event the args behind those asked for; nan for none */
    Py_ssize_t filled, size;
    Table texts;
} Answers;

static int totals(const Asked *asked, Answers *answers) {
    Py_ssize_t width = asked->named - asked->count;
    if (!width || !NAMED(asked->name, "[memory]")) return DONE;
    int is_instant = NAMED(asked->phase, "i") || NAMED(asked->phase, "I")
                     || (NAMED(asked->phase, "X") && NAMED(asked->category, INSTANT));
    if (!is_instant) return DONE;
    if (answers->filled + width > answers->size) {
        Py_ssize_t size = answers->size ? answers->size * 2 : 4096;
        if (!grown((void **)&answers->totals, size, sizeof(double))) return FAILED;
        answers->size = size;
    }
    for (Py_ssize_t n = asked->count; n < asked->named; n++) {
        Span each = asked->values[n];
        Text text = {each.at, each.at + each.length, 0};
        int64_t found;
        if (each.length && !(integer(&text, &found) && text.at == text.end)) return UNKNOWN;
        answers->totals[answers->filled++] = each.length ? (double)found : Py_NAN;
    }
    return DONE;
}

static int all_asked(Text *text, Asked *asked, int numbered, Answers *answers) {
    Py_ssize_t next_asked = 0;
    int64_t place = 0;
    do {
        blanks(text);
        if (!asked_event(text, asked, numbered)) return UNKNOWN;
        int is_asked = next_asked < answers->count && answers->places[next_asked] == place;
        int32_t number = is_asked ? number_of_values(asked, &answers->texts) : -1;
        if (number == -2) return FAILED;
        while (next_asked < answers->count && answers->places[next_asked] == place)
            answers->numbers[next_asked++] = number;
        if (asked->sequence >= 0) {
            if (answers->found == answers->room) {
                Py_ssize_t room = answers->room ? answers->room * 2 : 1024;
                if (!grown((void **)&answers->sequences, room, 3 * sizeof(int64_t))) return FAILED;
                answers->room = room;
            }
            int64_t *row = answers->sequences + 3 * answers->found++;
            row[0] = place;
            row[1] = asked->sequence;
            row[2] = asked->thread < 0 ? 0 : asked->thread;
        }
        int done = totals(asked, answers);
        if (done != DONE) return done;
        place++;
        blanks(text);
        if (!next(text, ',')) break;
        blanks(text); /* a comma may stand behind the last */
    } while (text->at < text->end);
    return text->at == text->end && next_asked == answers->count ? DONE : UNKNOWN;
}

static int names_of(PyObject *tuple, Asked *asked, Py_ssize_t totals) {
    asked->named = PyTuple_Size(tuple);
    asked->count = asked->named - totals;
    if (totals < 0 || asked->count < 1 || asked->named > MOST_ARGS) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "1 to 32 names");
        return 0;
    }
    for (Py_ssize_t n = 0; n < asked->named; n++) {
        char *name;
        PyObject *item = PyTuple_GetItem(tuple, n);
        if (!item || PyBytes_AsStringAndSize(item, &name, &asked->names[n].length)) return 0;
        asked->names[n].at = name;
        asked->lengths |= UINT64_C(1) << (asked->names[n].length & 63);
    }
    return 1;
}

static PyObject *arguments(PyObject *module, PyObject *given) {
    Py_buffer buffer, places;
    PyObject *names, *found = NULL;
    int numbered, done = FAILED;
    Py_ssize_t totals;
    Asked asked;
    Answers answers;
    (void)module;
    memset(&asked, 0, sizeof asked);
    memset(&answers, 0, sizeof answers);
    if (!PyArg_ParseTuple(given, "y*y*O!np", &buffer, &places, &PyTuple_Type, &names, &totals,
                          &numbered))
        return NULL;
    answers.places = places.buf;
    answers.count = places.len / (Py_ssize_t)sizeof(int64_t);
    if (names_of(names, &asked, totals)
        && (!answers.count || grown((void **)&answers.numbers, answers.count, sizeof(int32_t)))) {
        Text text = {buffer.buf, (const char *)buffer.buf + buffer.len, 0};
        done = UNKNOWN;
        if (buffer.len < INT32_MAX) {
            Py_BEGIN_ALLOW_THREADS
            done = all_asked(&text, &asked, numbered, &answers);
            Py_END_ALLOW_THREADS
        }
    }
    if (done == DONE)
        found = Py_BuildValue("(NNNN)", bytes_of(answers.numbers, answers.count, sizeof(int32_t)),
                              texts(&answers.texts),
                              bytes_of(answers.sequences, answers.found, 3 * sizeof(int64_t)),
                              bytes_of(answers.totals, answers.filled, sizeof(double)));
    else if (done == UNKNOWN) found = Py_NewRef(Py_None);
    else if (!PyErr_Occurred()) PyErr_NoMemory();
    freed_with_copies(&answers.texts);
    free(answers.numbers);
    free(answers.sequences);
    free(answers.totals);
    free(asked.joined);
    PyBuffer_Release(&places);
    PyBuffer_Release(&buffer);
    return found;
}

static PyMethodDef methods[] = {
    {"events", events, METH_VARARGS, "The columns of elements, or None."},
    {"arguments", arguments, METH_VARARGS, "Some args of some elements, or None."},
    {NULL, NULL, 0, NULL},
};

static int prepared(PyObject *module) {
    PyObject *word = PyUnicode_FromString("fusetui");
    if (!word) return -1;
    seed = (uint64_t)PyObject_Hash(word);
    Py_DECREF(word);
    return PyModule_AddIntConstant(module, "MOST_ARGS", MOST_ARGS);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepared}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "scan", "JSON of a trace to columns.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_scan(void) { return PyModuleDef_Init(&definition); }
