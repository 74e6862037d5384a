-- Carries what markdown alone cannot say into HTML and typst. Runs under pandoc and under Quarto.

local html = FORMAT:match("html") ~= nil
local typst = FORMAT:match("typst") ~= nil

-- Spans and links whose class has a function of the same name in report.typ.
local styled = {
  badge = true,
  tile = true,
  cid = true,
  code = true,
  count = true,
  fine = true,
  lead = true,
  meta = true,
  number = true,
  ["tally-name"] = true,
  tiles = true,
}

local function plain(inlines)
  return pandoc.utils.stringify(inlines)
end

local function verdict(classes)
  for _, class in ipairs(classes) do
    local name = class:match("^v%-(%a+)$")
    if name then
      return name
    end
  end
  return ""
end

local function in_typst(element)
  if not typst then
    return nil
  end
  for _, class in ipairs(element.classes) do
    if styled[class] then
      local open = string.format('#st-%s("%s")[', class, verdict(element.classes))
      return { pandoc.RawInline("typst", open), element, pandoc.RawInline("typst", "]") }
    end
  end
end

function Span(span)
  return in_typst(span)
end

function Link(link)
  return in_typst(link)
end

function Image(image)
  -- Quarto reads fig-alt; pandoc knows it as alt.
  if not quarto and image.attributes["fig-alt"] then
    image.attributes["alt"] = image.attributes["fig-alt"]
    image.attributes["fig-alt"] = nil
  end
  if html then
    image.attributes["loading"] = "lazy"
    image.attributes["decoding"] = "async"
  end
  return image
end

-- pandoc's own typst has no place for the text that stands for an image.
local function described(image, caption)
  local text = (image.attributes["alt"] or ""):gsub("\\", "\\\\"):gsub('"', '\\"')
  local blocks = pandoc.Blocks({
    pandoc.RawBlock("typst", string.format('#figure(image("%s", alt: "%s"), caption: [', image.src, text)),
  })
  blocks:extend(caption)
  blocks:insert(pandoc.RawBlock("typst", "])"))
  return blocks
end

function Figure(figure)
  local image = figure.content[1] and figure.content[1].content and figure.content[1].content[1]
  if typst and not quarto and image and image.t == "Image" then
    return described(image, figure.caption.long)
  end
  if html and not quarto and image and image.t == "Image" and image.classes:includes("central") then
    -- Wide figures keep their size on a small screen and scroll in a frame.
    local label = plain(pandoc.Blocks(figure.caption.long))
    local attr = { { "role", "region" }, { "tabindex", "0" }, { "aria-label", label } }
    return pandoc.Div({ figure }, pandoc.Attr("", { "table-frame", "figure-frame" }, attr))
  end
end

local function blocks_of_class(div)
  local open = string.format("#st-block-%s[", div.classes[1])
  return { pandoc.RawBlock("typst", open), div, pandoc.RawBlock("typst", "]") }
end

function Div(div)
  local callout = div.classes[1] and div.classes[1]:match("^callout%-(%a+)$")
  if callout and not quarto then
    local title = div.attributes["title"] or ""
    div.attributes["title"] = nil
    table.insert(div.content, 1, pandoc.Para({ pandoc.Strong(title) }))
    if typst then
      return { pandoc.RawBlock("typst", "#st-callout["), div, pandoc.RawBlock("typst", "]") }
    end
    div.classes = { "callout", "callout-" .. callout }
    div.attributes["role"] = "note"
    return div
  end
  if typst and (div.classes[1] == "answer" or div.classes[1] == "tally" or div.classes[1] == "reason") then
    return blocks_of_class(div)
  end
end

local function widths(tbl)
  local given = tbl.attributes["widths"] or (tbl.caption.attr and tbl.caption.attr.attributes["widths"])
  tbl.attributes["widths"] = nil
  local shares, total = {}, 0
  for share in (given or ""):gmatch("%d+") do
    table.insert(shares, tonumber(share))
    total = total + tonumber(share)
  end
  for column, spec in ipairs(tbl.colspecs) do
    tbl.colspecs[column] = { spec[1], shares[column] and shares[column] / total or nil }
  end
end

function Table(tbl)
  widths(tbl)
  local heads = {}
  for _, row in ipairs(tbl.head.rows) do
    for column, cell in ipairs(row.cells) do
      heads[column] = plain(cell.contents)
      cell.attributes["scope"] = "col"
    end
  end
  if html then
    for _, body in ipairs(tbl.bodies) do
      for _, row in ipairs(body.body) do
        for column, cell in ipairs(row.cells) do
          cell.attributes["label"] = heads[column] or ""
        end
      end
    end
    -- A table that is wider than the page scrolls in its own frame, which the keyboard must reach.
    local frame = pandoc.Attr("", { "table-frame" }, {
      { "role", "region" },
      { "tabindex", "0" },
      { "aria-label", plain(pandoc.Blocks(tbl.caption.long)) },
    })
    return pandoc.Div({ tbl }, frame)
  end
  if typst then
    local class = tbl.classes[1] or "plain"
    return {
      pandoc.RawBlock("typst", string.format('#st-table("%s")[', class)),
      tbl,
      pandoc.RawBlock("typst", "]"),
    }
  end
end

-- In the PDF the contents list follows the opening page. (Quarto sets its own.)
function Pandoc(doc)
  if not typst or quarto then
    return nil
  end
  local blocks = pandoc.Blocks({})
  for _, block in ipairs(doc.blocks) do
    if block.t == "Header" and block.identifier == "table" then
      blocks:insert(pandoc.RawBlock("typst", "#pagebreak()\n#st-contents()\n#pagebreak()"))
    end
    blocks:insert(block)
  end
  doc.blocks = blocks
  return doc
end
