/* A framework's tensors, as small as they can be: a type with DLPack's table of C functions. Compiled
 * by the tests. The structures are those of dlpack.h 1.3. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

typedef struct { uint32_t major, minor; } Version;
typedef struct { int32_t type, id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } DataType;
typedef struct {
  void* data;
  Device device;
  int32_t rank;
  DataType type;
  int64_t* sizes;
  int64_t* strides;
  uint64_t offset;
} DLTensor;
typedef struct Managed {
  Version version;
  void* manager;
  void (*deleter)(struct Managed*);
  uint64_t flags;
  DLTensor tensor;
} Managed;
typedef struct Header { Version version; const struct Header* previous; } Header;
typedef struct {
  Header header;
  int (*allocate)(DLTensor*, Managed**, void*, void (*)(void*, const char*, const char*));
  int (*managed_from_object)(void*, Managed**);
  int (*object_from_managed)(Managed*, void**);
  int (*tensor_from_object)(void*, DLTensor*);
  int (*current_stream)(int32_t, int32_t, void**);
} Table;

enum { RANK = 8 };

typedef struct {
  PyObject_HEAD
  PyObject* weak;
  Py_buffer view;    /* of a tensor made from an array */
  Managed* managed;  /* of a tensor made from another library's memory */
  int64_t numbers[2 * RANK];
  DLTensor tensor;
} Tensor;

static PyTypeObject* tensor_type;
static long lent = 0, reads = 0; /* managed tensors given away; how often a tensor was read */
static int refuse_results = 0;

static int fill(Tensor* self, PyObject* array) {
  Py_buffer view;
  if (PyObject_GetBuffer(array, &view, PyBUF_STRIDES) < 0) return -1;
  if (view.ndim > RANK) {
    PyBuffer_Release(&view);
    PyErr_SetString(PyExc_ValueError, "too many dimensions");
    return -1;
  }
  PyBuffer_Release(&self->view);
  self->view = view;
  self->tensor.rank = view.ndim;
  self->tensor.sizes = self->numbers;
  self->tensor.strides = self->numbers + RANK;
  int empty = 0;
  for (int i = 0; i < view.ndim; ++i) {
    self->numbers[i] = view.shape[i];
    self->numbers[RANK + i] = view.strides[i] / view.itemsize;
    empty |= view.shape[i] == 0;
  }
  self->tensor.data = empty ? NULL : view.buf;
  return 0;
}

/* Tensor(array, code, bits, device=1) */
static int tensor_init(PyObject* object, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"array", "code", "bits", "device", NULL};
  Tensor* self = (Tensor*)object;
  PyObject* array;
  int code, bits, device = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oii|i", names, &array, &code, &bits, &device)) return -1;
  self->tensor.device.type = device;
  self->tensor.type.code = (uint8_t)code;
  self->tensor.type.bits = (uint8_t)bits;
  self->tensor.type.lanes = 1;
  return fill(self, array);
}

static void tensor_dealloc(PyObject* object) {
  Tensor* self = (Tensor*)object;
  if (self->weak != NULL) PyObject_ClearWeakRefs(object);
  PyBuffer_Release(&self->view);
  if (self->managed != NULL && self->managed->deleter != NULL) self->managed->deleter(self->managed);
  PyTypeObject* type = Py_TYPE(object);
  type->tp_free(object);
  Py_DECREF(type);
}

/* Other memory for the same object, as `set_` and `resize_` give it. */
static PyObject* tensor_set(PyObject* object, PyObject* array) {
  if (fill((Tensor*)object, array) < 0) return NULL;
  Py_RETURN_NONE;
}

/* A tensor of the same sizes without memory, as in a trace. */
static PyObject* tensor_forget(PyObject* object, PyObject* unused) {
  (void)unused;
  ((Tensor*)object)->tensor.data = NULL;
  return Py_NewRef(object);
}

/* Elements of a dense tensor. */
static PyObject* tensor_bytes(PyObject* object, PyObject* unused) {
  (void)unused;
  const DLTensor* tensor = &((Tensor*)object)->tensor;
  Py_ssize_t bytes = tensor->type.bits / 8, expected = 1;
  for (int i = tensor->rank - 1; i >= 0; --i) {
    bytes *= tensor->sizes[i];
    if (tensor->sizes[i] > 1 && tensor->strides[i] != expected) {
      PyErr_SetString(PyExc_ValueError, "not dense");
      return NULL;
    }
    if (tensor->sizes[i] != 0) expected *= tensor->sizes[i];
  }
  return PyBytes_FromStringAndSize((char*)tensor->data + tensor->offset, bytes);
}

static PyObject* tensor_describe(PyObject* object, PyObject* unused) {
  (void)unused;
  const DLTensor* tensor = &((Tensor*)object)->tensor;
  PyObject* sizes = PyTuple_New(tensor->rank);
  if (sizes == NULL) return NULL;
  for (int i = 0; i < tensor->rank; ++i) {
    PyTuple_SET_ITEM(sizes, i, PyLong_FromLongLong(tensor->sizes[i]));
  }
  return Py_BuildValue("Niin", sizes, tensor->type.code, tensor->type.bits,
                       (Py_ssize_t)(uintptr_t)tensor->data);
}

static PyMethodDef tensor_methods[] = {
    {"set_", tensor_set, METH_O, NULL},
    {"forget", tensor_forget, METH_NOARGS, NULL},
    {"bytes", tensor_bytes, METH_NOARGS, NULL},
    {"describe", tensor_describe, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef tensor_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Tensor, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot tensor_slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_init, tensor_init},       {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_methods, tensor_methods}, {Py_tp_members, tensor_members}, {0, NULL},
};
static PyType_Spec tensor_spec = {"tensors.Tensor", sizeof(Tensor), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, tensor_slots};

static int check(PyObject* object) {
  ++reads;
  const Tensor* self = (Tensor*)object;
  if (self->tensor.type.lanes != 0) return 0;
  PyErr_SetString(PyExc_BufferError, "a tensor without memory");
  return -1;
}

static int borrow(void* object, DLTensor* out) {
  if (check(object) < 0) return -1;
  *out = ((Tensor*)object)->tensor;
  return 0;
}

typedef struct { Managed managed; PyObject* object; int64_t numbers[2 * RANK]; } Lent;

static void take_back(Managed* managed) {
  Lent* self = managed->manager;
  PyGILState_STATE state = PyGILState_Ensure();
  Py_DECREF(self->object);
  --lent;
  PyGILState_Release(state);
  free(self);
}

static int lend(void* object, Managed** out) {
  if (check(object) < 0) return -1;
  const Tensor* self = object;
  Lent* made = calloc(1, sizeof(Lent));
  made->object = Py_NewRef(object);
  made->managed.version.major = 1;
  made->managed.version.minor = 3;
  made->managed.manager = made;
  made->managed.deleter = &take_back;
  made->managed.tensor = self->tensor;
  memcpy(made->numbers, self->numbers, sizeof(made->numbers));
  made->managed.tensor.sizes = made->numbers;
  made->managed.tensor.strides = made->numbers + RANK;
  ++lent;
  *out = &made->managed;
  return 0;
}

static int lend_future(void* object, Managed** out) {
  const int status = lend(object, out);
  if (status == 0) (*out)->version.major = 2;
  return status;
}

static int receive(Managed* managed, void** out) {
  if (refuse_results) {
    PyErr_SetString(PyExc_BufferError, "no tensor is made of this");
    return -1;
  }
  Tensor* self = (Tensor*)tensor_type->tp_alloc(tensor_type, 0);
  if (self == NULL) return -1;
  self->managed = managed;
  self->tensor = managed->tensor;
  *out = self;
  return 0;
}

static int stream(int32_t type, int32_t id, void** out) {
  (void)type, (void)id;
  *out = NULL;
  return 0;
}

static Table usual = {{{1, 3}, NULL}, NULL, &lend, &receive, &borrow, &stream};
static Table lending = {{{1, 3}, NULL}, NULL, &lend, &receive, NULL, &stream};
static Table lending_future = {{{1, 3}, NULL}, NULL, &lend_future, &receive, NULL, &stream};
static Table newer = {{{7, 0}, &usual.header}, NULL, NULL, NULL, NULL, NULL};
static Table future = {{{7, 0}, NULL}, NULL, NULL, NULL, NULL, NULL};
static Table lacking = {{{1, 3}, NULL}, NULL, NULL, &receive, &borrow, &stream};

static PyObject* module_counts(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return Py_BuildValue("ll", lent, reads);
}

static PyObject* module_refuse(PyObject* self, PyObject* flag) {
  (void)self;
  refuse_results = PyObject_IsTrue(flag);
  Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"counts", module_counts, METH_NOARGS, NULL},
    {"refuse_results", module_refuse, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "tensors", NULL, -1, module_methods, NULL, NULL, NULL, NULL};

static int add_table(PyObject* module, const char* name, Table* table, const char* capsule_name) {
  PyObject* capsule = PyCapsule_New(table, capsule_name, NULL);
  return capsule == NULL ? -1 : PyModule_AddObject(module, name, capsule);
}

PyMODINIT_FUNC PyInit_tensors(void) {
  static const char name[] = "dlpack_exchange_api";
  PyObject* module = PyModule_Create(&module_definition);
  tensor_type = (PyTypeObject*)PyType_FromSpec(&tensor_spec);
  if (module == NULL || tensor_type == NULL) return NULL;
  Py_INCREF(tensor_type);
  if (PyModule_AddObject(module, "Tensor", (PyObject*)tensor_type) < 0 ||
      add_table(module, "usual", &usual, name) < 0 || add_table(module, "lending", &lending, name) < 0 ||
      add_table(module, "lending_future", &lending_future, name) < 0 ||
      add_table(module, "newer", &newer, name) < 0 || add_table(module, "future", &future, name) < 0 ||
      add_table(module, "lacking", &lacking, name) < 0 ||
      add_table(module, "misnamed", &usual, "dltensor") < 0) {
    return NULL;
  }
  PyObject* capsule = PyObject_GetAttrString(module, "usual");
  if (capsule == NULL ||
      PyObject_SetAttrString((PyObject*)tensor_type, "__dlpack_c_exchange_api__", capsule) < 0) {
    return NULL;
  }
  Py_DECREF(capsule);
  return module;
}
