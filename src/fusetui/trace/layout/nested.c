/* The trees of the slices of all tracks, row by row; nesting.py says what they are, and computes the same with
numpy where this was not compiled.

Only the stable interface of Python 3.11 is used: one build serves all later versions. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { BOUNDS, START, END, CALL, DEPTH, PARENT, END_ROW, CROSSING, COLUMNS };

/* The rows of a track. A row is open while its subtree goes on: open before a row are the one above it and the
parents of that. Each is closed once, so all rows together take as many steps as there are. */
static void track(int32_t row, int32_t last, const Py_buffer *given) {
    const int64_t *start = given[START].buf, *end = given[END].buf;
    const char *call = given[CALL].buf;
    int32_t *depth = given[DEPTH].buf, *parent = given[PARENT].buf, *end_row = given[END_ROW].buf;
    char *crossing = given[CROSSING].buf;
    int32_t open = -1;
    for (; row < last; open = row++) {
        for (; open >= 0 && end[open] <= start[row]; open = parent[open]) end_row[open] = row;
        parent[row] = open;
        depth[row] = open < 0 ? 0 : depth[open] + 1;
        int equal = open >= 0 && start[row] == start[open] && end[row] == end[open];
        crossing[row] = open >= 0 && (end[row] > end[open] || (equal && call[row] && call[open]));
    }
    for (; open >= 0; open = parent[open]) end_row[open] = last;
}

/* Whether the columns are as long as they must be, and the bounds ascend to their length. */
static int fit(const Py_buffer *given) {
    static const Py_ssize_t sizes[COLUMNS] = {8, 8, 8, 1, 4, 4, 4, 1};
    const int64_t *bounds = given[BOUNDS].buf;
    Py_ssize_t count = given[START].len / 8, number = given[BOUNDS].len / 8;
    for (int n = START; n < COLUMNS; n++)
        if (given[n].len != count * sizes[n]) return 0;
    if (count >= INT32_MAX || number < 1 || bounds[0] || bounds[number - 1] != count) return 0;
    for (Py_ssize_t n = 1; n < number; n++)
        if (bounds[n] < bounds[n - 1]) return 0;
    return 1;
}

static PyObject *trees(PyObject *module, PyObject *arguments) {
    Py_buffer given[COLUMNS];
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*w*w*w*w*", &given[BOUNDS], &given[START], &given[END],
                          &given[CALL], &given[DEPTH], &given[PARENT], &given[END_ROW], &given[CROSSING]))
        return NULL;
    int fits = fit(given);
    if (fits) {
        const int64_t *bounds = given[BOUNDS].buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t n = 1; n < given[BOUNDS].len / 8; n++)
            track((int32_t)bounds[n - 1], (int32_t)bounds[n], given);
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "columns of one length, below 2^31 rows, and bounds of their rows");
    }
    for (int n = 0; n < COLUMNS; n++) PyBuffer_Release(&given[n]);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef methods[] = {
    {"trees", trees, METH_VARARGS, "Fills in depth, parent, end_row and crossing of sorted rows."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "nested", "The trees of the slices of tracks.", 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_nested(void) { return PyModuleDef_Init(&definition); }
