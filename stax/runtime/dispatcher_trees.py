"""The LLVM IR that takes arguments apart and builds the result.

The one idea: a container is taken apart by the steps of a table (see call_form.py) on a stack, and
each object on the stack is held, because a step may run Python code. Containers are read through
functions of CPython's API, so nothing here depends on how they are laid out.
"""

# The items of a tuple or a list at %x.p, pushed from the last to the first.
_ITEMS = """
{kind}.size:
  %{kind}.x = load ptr, ptr %x.p
  %{kind}.count = call i64 @Py{Kind}_Size(ptr %{kind}.x)
  %{kind}.fits = icmp eq i64 %{kind}.count, %count
  br i1 %{kind}.fits, label %{kind}.item, label %wrong
{kind}.item:
  %{kind}.i = phi i64 [%count, %{kind}.size], [%{kind}.less, %{kind}.push]
  %{kind}.done = icmp eq i64 %{kind}.i, 0
  br i1 %{kind}.done, label %release, label %{kind}.push
{kind}.push:
  %{kind}.less = sub i64 %{kind}.i, 1
  %{kind}.child = call ptr @Py{Kind}_GetItem(ptr %{kind}.x, i64 %{kind}.less)
  call void @push(ptr %top.p, ptr %{kind}.child)
  br label %{kind}.item
"""

# A tuple or a list of %count children.
_NEW = """
{kind}:
  %{kind}.x = call ptr @Py{Kind}_New(i64 %count)
  %no.{kind} = icmp eq ptr %{kind}.x, null
  br i1 %no.{kind}, label %failed, label %{kind}.item
{kind}.item:
  %{kind}.i = phi i64 [0, %{kind}], [%{kind}.next, %{kind}.set]
  %{kind}.done = icmp eq i64 %{kind}.i, %count
  br i1 %{kind}.done, label %built, label %{kind}.set
{kind}.set:
  %{kind}.child.p = getelementptr ptr, ptr %children, i64 %{kind}.i
  %{kind}.child = load ptr, ptr %{kind}.child.p
  %{kind}.r = call i32 @Py{Kind}_SetItem(ptr %{kind}.x, i64 %{kind}.i, ptr %{kind}.child)
  %{kind}.next = add i64 %{kind}.i, 1
  br label %{kind}.item
"""

_TEXT = """
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyList_Size(ptr)
declare ptr @PyList_GetItem(ptr, i64)
declare i64 @PyDict_Size(ptr)
declare ptr @PyDict_New()
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare i32 @PyUnicode_Compare(ptr, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare void @PyErr_Clear()

define internal void @push(ptr %top.p, ptr %object) {
  %top = load ptr, ptr %top.p
  %slot = getelementptr ptr, ptr %top, i64 -1
  store ptr %object, ptr %slot
  store ptr %slot, ptr %top.p
  call void @Py_IncRef(ptr %object)
  ret void
}

; The arguments of a call, the first one on top. False if the keywords have other names.
define internal i1 @push_arguments(ptr %v, ptr %args, ptr %names, ptr %top.p) {
entry:
  %positional = field %Variant %v, positional
  %n.names = field %Variant %v, n_names
  %wanted.names = field %Variant %v, names
  br label %name
name:
  %j = phi i64 [%n.names, %entry], [%j.less, %found]
  %named = icmp eq i64 %j, 0
  br i1 %named, label %place, label %find
find:
  %j.less = sub i64 %j, 1
  %wanted.p = getelementptr ptr, ptr %wanted.names, i64 %j.less
  %wanted = load ptr, ptr %wanted.p
  br label %look
look:
  %k = phi i64 [0, %find], [%k.next, %other]
  %absent = icmp eq i64 %k, %n.names
  br i1 %absent, label %no, label %compare
compare:
  %given = call ptr @PyTuple_GetItem(ptr %names, i64 %k)
  %identical = icmp eq ptr %given, %wanted
  br i1 %identical, label %found, label %unlike
unlike:
  %order = call i32 @PyUnicode_Compare(ptr %given, ptr %wanted)
  %equal = icmp eq i32 %order, 0
  br i1 %equal, label %found, label %other
other:
  %k.next = add i64 %k, 1
  br label %look
found:
  %index = add i64 %positional, %k
  %value.p = getelementptr ptr, ptr %args, i64 %index
  %value = load ptr, ptr %value.p
  call void @push(ptr %top.p, ptr %value)
  br label %name
place:
  %i = phi i64 [%positional, %name], [%i.less, %given.place]
  %placed = icmp eq i64 %i, 0
  br i1 %placed, label %yes, label %given.place
given.place:
  %i.less = sub i64 %i, 1
  %arg.p = getelementptr ptr, ptr %args, i64 %i.less
  %arg = load ptr, ptr %arg.p
  call void @push(ptr %top.p, ptr %arg)
  br label %place
yes:
  ret i1 true
no:
  ret i1 false
}

; Takes the arguments apart. On success %leaves holds the leaves, each held once more.
define internal i1 @walk(ptr %v, ptr %args, ptr %names, ptr %leaves) {
entry:
  %size = field %Variant %v, argument_stack
  %stack = alloca ptr, i64 %size, align 16
  %bottom = getelementptr ptr, ptr %stack, i64 %size
  %top.p = alloca ptr
  store ptr %bottom, ptr %top.p
  %leaf.p = alloca ptr
  store ptr %leaves, ptr %leaf.p
  %x.p = alloca ptr
  %steps = field %Variant %v, arguments
  %n = field %Variant %v, n_arguments
  %pushed = call i1 @push_arguments(ptr %v, ptr %args, ptr %names, ptr %top.p)
  br i1 %pushed, label %step, label %drop
step:
  %s = phi i64 [0, %entry], [%s.next, %leaf], [%s.next, %release]
  %s.next = add i64 %s, 1
  %done = icmp eq i64 %s, %n
  br i1 %done, label %exit, label %take
take:
  %step.p = getelementptr %Step, ptr %steps, i64 %s
  %kind = load i64, ptr %step.p
  %object = field %Step %step.p, object
  %count = field %Step %step.p, count
  %items = field %Step %step.p, items
  %top = load ptr, ptr %top.p
  %x = load ptr, ptr %top
  %below = getelementptr ptr, ptr %top, i64 1
  store ptr %below, ptr %top.p
  store ptr %x, ptr %x.p
  %x.class.p = getelementptr i8, ptr %x, i64 8
  %x.class = load ptr, ptr %x.class.p
  switch i64 %kind, label %wrong [
    i64 0, label %leaf
    i64 1, label %same
    i64 2, label %tuple
    i64 3, label %list
    i64 4, label %dict
    i64 5, label %static
    i64 6, label %custom
  ]
leaf:
  %slot = load ptr, ptr %leaf.p
  store ptr %x, ptr %slot
  %slot.next = getelementptr ptr, ptr %slot, i64 1
  store ptr %slot.next, ptr %leaf.p
  br label %step

same:
  %is.object = icmp eq ptr %x, %object
  br i1 %is.object, label %release, label %wrong

tuple:
  %is.tuple = icmp eq ptr %x.class, %object
  br i1 %is.tuple, label %tuple.size, label %wrong
{tuple_items}
list:
  %is.list = icmp eq ptr %x.class, %object
  br i1 %is.list, label %list.size, label %wrong
{list_items}
dict:
  %is.dict = icmp eq ptr %x.class, %object
  br i1 %is.dict, label %dict.size, label %wrong
dict.size:
  %d.size = call i64 @PyDict_Size(ptr %x)
  %d.fits = icmp eq i64 %d.size, %count
  br i1 %d.fits, label %dict.item, label %wrong
dict.item:
  %d.i = phi i64 [%count, %dict.size], [%d.less, %dict.push]
  %d.done = icmp eq i64 %d.i, 0
  br i1 %d.done, label %release, label %dict.look
dict.look:
  %d.less = sub i64 %d.i, 1
  %key.p = getelementptr ptr, ptr %items, i64 %d.less
  %key = load ptr, ptr %key.p
  %d.child = call ptr @PyDict_GetItemWithError(ptr %x, ptr %key)
  %no.key = icmp eq ptr %d.child, null
  br i1 %no.key, label %wrong, label %dict.push
dict.push:
  call void @push(ptr %top.p, ptr %d.child)
  br label %dict.item

static:
  %object.class.p = getelementptr i8, ptr %object, i64 8
  %object.class = load ptr, ptr %object.class.p
  %like.object = icmp eq ptr %x.class, %object.class
  br i1 %like.object, label %static.compare, label %wrong
static.compare:
  ; Py_EQ
  %is.equal = call i32 @PyObject_RichCompareBool(ptr %x, ptr %object, i32 2)
  %equal = icmp eq i32 %is.equal, 1
  br i1 %equal, label %release, label %wrong

custom:
  %class = load ptr, ptr %items
  %is.custom = icmp eq ptr %x.class, %class
  br i1 %is.custom, label %custom.call, label %wrong
custom.call:
  %children = call ptr @PyObject_Vectorcall(ptr %object, ptr %x.p, i64 1, ptr null)
  %raised = icmp eq ptr %children, null
  br i1 %raised, label %wrong, label %custom.children
custom.children:
  call void @Py_DecRef(ptr %x)
  store ptr %children, ptr %x.p
  %children.class.p = getelementptr i8, ptr %children, i64 8
  %children.class = load ptr, ptr %children.class.p
  %tuple.class = field %Process @stax_process, tuple
  %are.tuple = icmp eq ptr %children.class, %tuple.class
  br i1 %are.tuple, label %tuple.size, label %wrong

release:
  %used = load ptr, ptr %x.p
  call void @Py_DecRef(ptr %used)
  br label %step
wrong:
  %unlike = load ptr, ptr %x.p
  call void @Py_DecRef(ptr %unlike)
  call void @PyErr_Clear()
  br label %drop
drop:
  %rest = load ptr, ptr %top.p
  %rest.i = ptrtoint ptr %rest to i64
  %bottom.i = ptrtoint ptr %bottom to i64
  %rest.bytes = sub i64 %bottom.i, %rest.i
  %n.rest = lshr i64 %rest.bytes, 3
  call void @drop(ptr %rest, i64 %n.rest)
  %end = load ptr, ptr %leaf.p
  %end.i = ptrtoint ptr %end to i64
  %leaves.i = ptrtoint ptr %leaves to i64
  %leaf.bytes = sub i64 %end.i, %leaves.i
  %n.leaves = lshr i64 %leaf.bytes, 3
  call void @drop(ptr %leaves, i64 %n.leaves)
  ret i1 false
exit:
  ret i1 true
}

; Puts the arrays into the structure of the result, whose steps stand in the order in which they are
; built; takes the arrays. Null with an error set.
define internal ptr @build(ptr %v, ptr %arrays) {
entry:
  %size = field %Variant %v, result_stack
  %stack = alloca ptr, i64 %size, align 16
  %top.p = alloca ptr
  store ptr %stack, ptr %top.p
  %array.p = alloca ptr
  store ptr %arrays, ptr %array.p
  %steps = field %Variant %v, results
  %n = field %Variant %v, n_results
  br label %step
step:
  %s = phi i64 [0, %entry], [%s.next, %built]
  %s.next = add i64 %s, 1
  %done = icmp eq i64 %s, %n
  br i1 %done, label %exit, label %take
take:
  %step.p = getelementptr %Step, ptr %steps, i64 %s
  %kind = load i64, ptr %step.p
  %object = field %Step %step.p, object
  %count = field %Step %step.p, count
  %items = field %Step %step.p, items
  %top = load ptr, ptr %top.p
  %before = sub i64 0, %count
  %children = getelementptr ptr, ptr %top, i64 %before
  switch i64 %kind, label %failed [
    i64 0, label %leaf
    i64 1, label %same
    i64 2, label %tuple
    i64 3, label %list
    i64 4, label %dict
    i64 7, label %call
  ]
leaf:
  %slot = load ptr, ptr %array.p
  %array = load ptr, ptr %slot
  %slot.next = getelementptr ptr, ptr %slot, i64 1
  store ptr %slot.next, ptr %array.p
  br label %built
same:
  call void @Py_IncRef(ptr %object)
  br label %built

{new_tuple}
{new_list}
dict:
  %d = call ptr @PyDict_New()
  %no.dict = icmp eq ptr %d, null
  br i1 %no.dict, label %failed, label %dict.item
dict.item:
  %d.i = phi i64 [0, %dict], [%d.next, %dict.set]
  %d.done = icmp eq i64 %d.i, %count
  br i1 %d.done, label %dict.drop, label %dict.set
dict.set:
  %d.child.p = getelementptr ptr, ptr %children, i64 %d.i
  %d.child = load ptr, ptr %d.child.p
  %key.p = getelementptr ptr, ptr %items, i64 %d.i
  %key = load ptr, ptr %key.p
  %d.r = call i32 @PyDict_SetItem(ptr %d, ptr %key, ptr %d.child)
  %d.next = add i64 %d.i, 1
  %d.set = icmp eq i32 %d.r, 0
  br i1 %d.set, label %dict.item, label %dict.failed
dict.failed:
  call void @Py_DecRef(ptr %d)
  br label %failed
dict.drop:
  call void @drop(ptr %children, i64 %count)
  br label %built

call:
  %c = call ptr @PyObject_Vectorcall(ptr %object, ptr %children, i64 %count, ptr null)
  %raised = icmp eq ptr %c, null
  br i1 %raised, label %failed, label %call.drop
call.drop:
  call void @drop(ptr %children, i64 %count)
  br label %built

built:
  %made = phi ptr [%array, %leaf], [%object, %same], [%tuple.x, %tuple.item], [%list.x, %list.item],
                  [%d, %dict.drop], [%c, %call.drop]
  store ptr %made, ptr %children
  %top.next = getelementptr ptr, ptr %children, i64 1
  store ptr %top.next, ptr %top.p
  br label %step
failed:
  %top.i = ptrtoint ptr %top to i64
  %stack.i = ptrtoint ptr %stack to i64
  %stack.bytes = sub i64 %top.i, %stack.i
  %n.stack = lshr i64 %stack.bytes, 3
  call void @drop(ptr %stack, i64 %n.stack)
  %n.arrays = field %Variant %v, n_outputs
  %rest = load ptr, ptr %array.p
  %rest.i = ptrtoint ptr %rest to i64
  %arrays.end = getelementptr ptr, ptr %arrays, i64 %n.arrays
  %arrays.end.i = ptrtoint ptr %arrays.end to i64
  %rest.bytes = sub i64 %arrays.end.i, %rest.i
  %n.rest = lshr i64 %rest.bytes, 3
  call void @drop(ptr %rest, i64 %n.rest)
  ret ptr null
exit:
  %result = load ptr, ptr %stack
  ret ptr %result
}
"""

TEXT = (
    _TEXT.replace("{tuple_items}", _ITEMS.format(kind="tuple", Kind="Tuple"))
    .replace("{list_items}", _ITEMS.format(kind="list", Kind="List"))
    .replace("{new_tuple}", _NEW.format(kind="tuple", Kind="Tuple"))
    .replace("{new_list}", _NEW.format(kind="list", Kind="List"))
)
